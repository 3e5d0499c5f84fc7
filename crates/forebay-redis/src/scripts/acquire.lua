-- KEYS: entry, leases, waiters.
-- ARGV: token, field, how long (ms), instance, stamp that was seen, how values begin, bytes at
-- most, how many leases at most, whether a waiter is to be noted, until when the answer is waited
-- for, by this server's clock (ms; 0 if nobody knows), whether this is the reading as well.
-- Answers {0} granted, {1, ms, whose} elsewhere, {2, ms left, value} something stands there,
-- {3} something foreign, {4} too many leases, {5} too late. The look comes first, in `look.lua`.
local span, at = tonumber(ARGV[3]), now()
-- A server that stood still is asked by many who have gone: a lease would be nobody's.
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
  return { 1, left, name_of(lease.token) }
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
put_lease(KEYS[2], ARGV[2], { token = ARGV[1], ends = at + span, since = at })
keep(KEYS[2], span)
return { 0 }
