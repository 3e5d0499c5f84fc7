-- Does to an era what another program has told of without doing it. KEYS: era.
-- ARGV: reach, milliseconds and number of the entry that told of it, random.
local hard, soft = era_of(KEYS[1])
if not hard then return redis.call('DEL', KEYS[1]) end
local ms, number = string.match(ARGV[1] == 'h' and hard or soft, '^(%d+)%-(%d+)')
ms, number = tonumber(ms), tonumber(number)
local its, nth = tonumber(ARGV[2]), tonumber(ARGV[3])
if ms > its or (ms == its and number >= nth) then return 0 end
move_era(KEYS[1], ARGV[1], ARGV[2] .. '-' .. ARGV[3] .. '-' .. ARGV[4])
return 1
