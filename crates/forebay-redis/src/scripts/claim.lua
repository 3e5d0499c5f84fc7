-- The right to fill without a lease: whoever claims last has it.
-- KEYS: leases. ARGV: token, field, how long (ms). Answers 1, or 0 where something foreign stands.
if type(redis.pcall('HLEN', KEYS[1])) ~= 'number' then return 0 end
local at = now()
put_lease(KEYS[1], ARGV[2], { token = ARGV[1], ends = at + ARGV[3], since = at })
keep(KEYS[1], tonumber(ARGV[3]))
return 1
