-- Moves a lease to another field. KEYS: leases, waiters. ARGV: token, field, other field, prefix of
-- channels, outcome, duration (ms). Returns 1, or 0 if the lease is gone or another instance has
-- the other field.
local _, lease = lease_of(KEYS[1], ARGV[2])
local at = now()
if not lease or lease.token ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[2])
local narrowed = 0
local foreign, other = lease_of(KEYS[1], ARGV[3])
if lease.ends > at and not foreign and (not other or other.ends <= at) then
  lease.ends = at + ARGV[6]
  put_lease(KEYS[1], ARGV[3], lease)
  keep(KEYS[1], tonumber(ARGV[6]))
  narrowed = 1
end
wake(KEYS[2], ARGV[4], ARGV[2], function(field)
  return message('R', KEYS[1], field, ARGV[1], ARGV[5])
end)
return narrowed
