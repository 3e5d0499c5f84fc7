-- Returns the end of the bus, and marks this instance as alive. KEYS: bus, instances, rules. ARGV:
-- instance, time that an instance counts as alive (ms), 1 to return the rules, maximum rules, 1 in
-- a Cluster, random number. Returns {end of the bus, replication id, number of instances, rules},
-- or {'!'} if other data is in place of the bus.
local last, at = last_of(KEYS[1]), now()
if not last then return { '!' } end
local added = redis.pcall('ZADD', KEYS[2], text(at), ARGV[1])
if type(added) ~= 'number' then
  -- A server that refuses writes returns its own error.
  if string.find(added.err, 'WRONGTYPE', 1, true) then return { '!' } end
  return added
end
-- An empty bus looks the same after a loss. Its first entry has a random id, so that it differs
-- from a bus created anew within the same millisecond.
if last == '0-0' then
  last = redis.call('XADD', KEYS[1], text(at) .. '-' .. ARGV[6], 'p', last, 'k', 'begin',
    'i', ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(at - ARGV[2]))
keep(KEYS[2], ARGV[2] * 4)
local replication = redis.pcall('INFO', 'replication')
local id = type(replication) == 'string' and string.match(replication, 'master_replid:(%x+)') or ''
-- The replication id changes if another server takes over. In a Cluster the epoch changes if any
-- master is replaced or slots move.
if ARGV[5] == '1' then
  local cluster = redis.pcall('CLUSTER', 'INFO')
  local epoch = type(cluster) == 'string' and string.match(cluster, 'cluster_current_epoch:(%d+)')
  id = id .. ':' .. (epoch or '')
end
local rules = {}
if ARGV[3] == '1' then
  rules = rules_of(KEYS[3], tonumber(ARGV[4]))
  if not rules then return { '!' } end
end
return { last, id, redis.call('ZCARD', KEYS[2]), rules }
