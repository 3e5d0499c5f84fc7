-- Applies the purge request of another program to a generation. KEYS: generation. ARGV: reach,
-- milliseconds and number of the request's id, random number.
local hard, soft = generation_of(KEYS[1])
if not hard then return redis.call('DEL', KEYS[1]) end
local ms, number = string.match(ARGV[1] == 'h' and hard or soft, '^(%d+)%-(%d+)')
ms, number = tonumber(ms), tonumber(number)
local its, nth = tonumber(ARGV[2]), tonumber(ARGV[3])
if ms > its or (ms == its and number >= nth) then return 0 end
move_generation(KEYS[1], ARGV[1], ARGV[2] .. '-' .. ARGV[3] .. '-' .. ARGV[4])
return 1
