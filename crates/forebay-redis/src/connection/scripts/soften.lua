-- Makes an entry and its variants stale by a new purge token (`envelope.rs`), removes the leases of
-- its key, and wakes all waiters. KEYS: entry, leases, waiters. ARGV: prefix of channels, prefix of
-- valid values, offset of the token, token. Returns 1, or the number of removed values if the entry
-- cannot be changed or is of another program.
redis.call('UNLINK', KEYS[2])
local found = 0
local is_ours = redis.pcall('GETRANGE', KEYS[1], 0, #ARGV[2] - 1) == ARGV[2]
if is_ours and type(redis.pcall('SETRANGE', KEYS[1], ARGV[3], ARGV[4])) == 'number' then
  found = 1
else
  found = redis.call('UNLINK', KEYS[1])
end
wake(KEYS[3], ARGV[1], nil, function(field)
  return message('A', KEYS[2], field, nil, '')
end)
redis.call('UNLINK', KEYS[3])
return found
