-- Releases a lease. KEYS: leases, waiters. ARGV: token, field, prefix of channels, outcome. Returns
-- 1, or 0 if the lease is gone.
local _, lease = lease_of(KEYS[1], ARGV[2])
if not lease or lease.token ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[2])
wake(KEYS[2], ARGV[3], ARGV[2], function(field)
  return message('R', KEYS[1], field, ARGV[1], ARGV[4])
end)
return 1
