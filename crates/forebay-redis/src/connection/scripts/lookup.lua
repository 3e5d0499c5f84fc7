-- Returns the entry before anything else is done, since most lookups are hits. KEYS: entry, leases,
-- waiters. ARGV: see `acquire.lua`.
local value = redis.pcall('GETRANGE', KEYS[1], 0, ARGV[7] - 1)
-- Data of another type is not a valid value.
if type(value) ~= 'string' then value = '?' end
local ours = string.sub(value, 1, #ARGV[6]) == ARGV[6]
if ours and string.sub(value, 32, 39) ~= ARGV[5] then
  return { 2, redis.call('PTTL', KEYS[1]), value }
end
-- A lookup counts invalid values, for which their first bytes are sufficient.
if ARGV[11] == '1' and not ours and #value > 0 then
  return { 2, redis.call('PTTL', KEYS[1]), string.sub(value, 1, 64) }
end
