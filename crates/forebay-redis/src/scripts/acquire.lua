-- KEYS: entry, leases, waiters.
-- ARGV: token, field, how long (ms), instance, stamp that was seen, how values begin, bytes at
-- most, how many leases at most, whether a waiter is to be noted.
-- Answers {0} granted, {1, ms, whose} elsewhere, {2, ms left, value} something stands there,
-- {3} something foreign, {4} too many leases.
local head = redis.pcall('GETRANGE', KEYS[1], 0, 38)
if type(head) == 'string' and string.sub(head, 1, #ARGV[6]) == ARGV[6]
    and string.sub(head, 32, 39) ~= ARGV[5] then
  return { 2, redis.call('PTTL', KEYS[1]), redis.call('GETRANGE', KEYS[1], 0, ARGV[7] - 1) }
end
local span, at = tonumber(ARGV[3]), now()
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
