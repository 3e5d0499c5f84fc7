-- Withdraws the rights to load a key and its variants, removes its entry, and lets all who wait
-- ask again. KEYS: entry, leases, waiters. ARGV: where channels begin.
-- Answers how many entries were removed.
redis.call('UNLINK', KEYS[2])
local removed = redis.call('UNLINK', KEYS[1])
wake(KEYS[3], ARGV[1], nil, function(field)
  return message('A', KEYS[2], field, nil, '')
end)
redis.call('UNLINK', KEYS[3])
return removed
