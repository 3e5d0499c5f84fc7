-- Renews a lease. KEYS: leases. ARGV: token, field, duration (ms). Returns 1, or 0 if the lease is
-- gone.
local _, lease = lease_of(KEYS[1], ARGV[2])
local at = now()
if not lease or lease.token ~= ARGV[1] or lease.ends <= at then return 0 end
lease.ends = at + ARGV[3]
put_lease(KEYS[1], ARGV[2], lease)
keep(KEYS[1], tonumber(ARGV[3]))
return 1
