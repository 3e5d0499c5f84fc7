-- Stores a value if its permission is still valid. KEYS: entry, leases, waiters, and the version
-- floor if the entry has a version. ARGV: token, field, time since the permission, additional time
-- allowed, TTL (all ms), 1 if the permission ends, maximum bytes of a value in a wake-up, prefix of
-- channels, value, version if any. Time lost on the way is subtracted from the TTL, so that it
-- counts as age. Returns 1, 0 if refused, or 2 if refused because of the version.
local _, lease = lease_of(KEYS[2], ARGV[2])
if not lease or lease.token ~= ARGV[1] then return 0 end
local at = now()
local lost = math.max(at - lease.since - ARGV[3], 0)
local kept = ARGV[5] - lost
if ARGV[6] == '1' then redis.call('HDEL', KEYS[2], ARGV[2]) end
local stored = 0
local outdated = KEYS[4] and floor_of(KEYS[4]) > ARGV[10]
if not outdated and at < lease.ends and lost <= tonumber(ARGV[4]) and kept > 0 then
  redis.call('SET', KEYS[1], ARGV[9], 'PX', text(kept))
  if KEYS[4] then raise_floor(KEYS[4], ARGV[10], kept) end
  stored = 1
end
if ARGV[6] == '1' then
  wake(KEYS[3], ARGV[8], ARGV[2], function(field)
    if stored == 0 then return message('A', KEYS[2], field, nil, '') end
    local handed = #ARGV[9] <= tonumber(ARGV[7]) and text(kept) .. ' ' .. ARGV[9] or ''
    return message('F', KEYS[2], field, ARGV[1], handed)
  end)
end
return outdated and 2 or stored
