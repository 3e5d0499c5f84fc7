-- What stands there, before anything else is done: a hit is what mostly happens.
-- KEYS: entry, leases, waiters. ARGV: see `acquire.lua`.
local value = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[7] - 1)
-- What is no string is no value of ours either.
if type(value) ~= 'string' then value = '?' end
local ours = string.sub(value, 1, #ARGV[6]) == ARGV[6]
if ours and string.sub(value, 32, 39) ~= ARGV[5] then
  return { 2, redis.call('PTTL', KEYS[1]), value }
end
-- Who reads counts what is none of ours, and needs no more than its beginning for that.
if ARGV[11] == '1' and not ours and #value > 0 then
  return { 2, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64) }
end
