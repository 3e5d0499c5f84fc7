-- Grants permission to store without a lease; the last claim is valid. KEYS: leases. ARGV: token,
-- field, duration (ms). Returns 1, or 0 if other data is in place of the leases.
if type(redis.pcall('HLEN', KEYS[1])) ~= 'number' then return 0 end
local at = now()
put_lease(KEYS[1], ARGV[2], { token = ARGV[1], ends = at + ARGV[3], since = at })
keep(KEYS[1], tonumber(ARGV[3]))
return 1
