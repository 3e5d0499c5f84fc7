-- Returns an entry, or grants a lease. KEYS: entry, leases, waiters. ARGV: token, field, duration
-- (ms), instance, stamp of the entry that the caller knows, prefix of valid values, maximum bytes,
-- maximum leases, 1 to register a waiter, deadline of the caller on this server's clock (ms; 0 if
-- unknown), 1 if this is also the lookup, mark of the load. Returns {0} granted, {1, ms, lease
-- digest, mark} held by another instance, {2, remaining TTL, value} entry found, {3} data of another program, {4} too
-- many leases, {5} too late. The lookup precedes this text: see `lookup.lua`.
local span, at = tonumber(ARGV[3]), now()
-- After a freeze, the requests of callers that gave up are executed. Their leases would block
-- others.
if tonumber(ARGV[10]) > 0 and at > tonumber(ARGV[10]) then return { 5 } end
local foreign, lease = lease_of(KEYS[2], ARGV[2])
if foreign then return { 3 } end
if lease and lease.ends > at then
  local left = lease.ends - at
  if left > span * 4 then return { 3 } end
  if ARGV[9] == '1' then
    local added = redis.pcall('SADD', KEYS[3], ARGV[4] .. ARGV[2])
    if type(added) ~= 'number' then return { 3 } end
    keep(KEYS[3], left + 1000)
  end
  return { 1, left, name_of(lease.token), lease.mark }
end
local most = tonumber(ARGV[8])
if not lease and redis.call('HLEN', KEYS[2]) >= most then
  if redis.call('HLEN', KEYS[2]) > most * 16 then return { 4 } end
  for _, field in ipairs(redis.call('HKEYS', KEYS[2])) do
    local _, other = lease_of(KEYS[2], field)
    if not other or other.ends <= at then redis.call('HDEL', KEYS[2], field) end
  end
  if redis.call('HLEN', KEYS[2]) >= most then return { 4 } end
end
put_lease(KEYS[2], ARGV[2], { token = ARGV[1], ends = at + span, since = at, mark = ARGV[12] })
keep(KEYS[2], span)
return { 0 }
