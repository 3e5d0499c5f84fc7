-- What stands there, before anything else is done: a hit is what mostly happens.
-- KEYS: entry, leases, waiters. ARGV: see `acquire.lua`; who has seen nothing yet, and reads, says
-- nothing of how values begin, and is given whatever is there.
local value = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[7] - 1)
-- What is no string is no value of ours either.
if type(value) ~= 'string' then value = '?' end
if #value > 0 and (ARGV[6] == '' or string.sub(value, 1, #ARGV[6]) == ARGV[6]
    and string.sub(value, 32, 39) ~= ARGV[5]) then
  return { 2, redis.call('PTTL', KEYS[1]), value }
end
