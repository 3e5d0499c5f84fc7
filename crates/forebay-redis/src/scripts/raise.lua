-- Makes way for a version: removes the entry and withdraws the rights to load it, as `remove` does,
-- and remembers which version is the oldest that may stand there from now on.
-- KEYS: entry, leases, waiters, floor. ARGV: where channels begin, version, how long it is
-- remembered (ms). Answers -1 if one that is as new is known; else how many entries were removed.
if floor_of(KEYS[4]) >= ARGV[2] then return -1 end
raise_floor(KEYS[4], ARGV[2], tonumber(ARGV[3]))
redis.call('UNLINK', KEYS[2])
local removed = redis.call('UNLINK', KEYS[1])
wake(KEYS[3], ARGV[1], nil, function(field)
  return message('A', KEYS[2], field, nil, '')
end)
redis.call('UNLINK', KEYS[3])
return removed
