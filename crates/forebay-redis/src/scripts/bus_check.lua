-- Where the bus stands, and that this instance is alive. KEYS: bus, instances, rules.
-- ARGV: instance, how long an instance counts as alive (ms), whether rules are wanted, rules at
-- most, whether this is a Cluster, a random number. Answers {where, what is another one when a
-- server may not know what it was told, instances, rules}, or {'!'} where something foreign stands.
local last, at = last_of(KEYS[1]), now()
if not last then return { '!' } end
local added = redis.pcall('ZADD', KEYS[2], text(at), ARGV[1])
if type(added) ~= 'number' then
  -- A server that takes no writes says so itself.
  if string.find(added.err, 'WRONGTYPE', 1, true) then return { '!' } end
  return added
end
-- An empty bus is the same whatever was lost with it. It gets a first entry, whose place is that of
-- no other, though all be lost and begun anew within a millisecond.
if last == '0-0' then
  last = redis.call('XADD', KEYS[1], text(at) .. '-' .. ARGV[6], 'p', last, 'k', 'begin',
    'i', ARGV[1])
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', text(at - ARGV[2]))
keep(KEYS[2], ARGV[2] * 4)
local replication = redis.pcall('INFO', 'replication')
local id = type(replication) == 'string' and string.match(replication, 'master_replid:(%x+)') or ''
-- The replication id tells of another server in the place of this one; where there are several,
-- their epoch tells of one in the place of any, and of slots that have moved.
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
