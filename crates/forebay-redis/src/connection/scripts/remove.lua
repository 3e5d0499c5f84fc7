-- Removes an entry and the leases of its key, and wakes all waiters. KEYS: entry, leases, waiters.
-- ARGV: prefix of channels. Returns the number of removed entries.
redis.call('UNLINK', KEYS[2])
local removed = redis.call('UNLINK', KEYS[1])
wake(KEYS[3], ARGV[1], nil, function(field)
  return message('A', KEYS[2], field, nil, '')
end)
redis.call('UNLINK', KEYS[3])
return removed
