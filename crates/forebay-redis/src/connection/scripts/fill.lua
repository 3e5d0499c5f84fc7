-- Stores a value if its permission is still valid. KEYS: entry, leases, waiters, entry of the
-- primary key, and the version floor if the entry has a version. ARGV: token, field, time since the
-- permission, additional time allowed, TTL (all ms), 1 if the permission ends, maximum bytes of a
-- value in a wake-up, prefix of channels, value, offset of the purge token if the value is a
-- variant or the record that lists them and otherwise 0, version if any. Time lost on the way is
-- subtracted from the TTL, so that it counts as age. Returns 1, 0 if refused, or 2 if refused
-- because of the version.
local TOKEN_LEN = 8

-- Returns a value with the purge token of the record that lists variants. If there is none, the
-- value keeps its own.
local function with_token_of(record, value, token_at)
  local begin = redis.pcall('GETRANGE', record, 0, token_at + TOKEN_LEN - 1)
  if type(begin) ~= 'string' or string.sub(begin, 1, 5) ~= string.sub(value, 1, 5) then
    return value
  end
  local token = string.sub(begin, token_at + 1)
  if #token ~= TOKEN_LEN or token == string.rep('\0', TOKEN_LEN) then return value end
  return string.sub(value, 1, token_at) .. token .. string.sub(value, token_at + TOKEN_LEN + 1)
end

local _, lease = lease_of(KEYS[2], ARGV[2])
if not lease or lease.token ~= ARGV[1] then return 0 end
local at = now()
local lost = math.max(at - lease.since - ARGV[3], 0)
local kept = ARGV[5] - lost
if ARGV[6] == '1' then redis.call('HDEL', KEYS[2], ARGV[2]) end
local stored = 0
local outdated = KEYS[5] and floor_of(KEYS[5]) > ARGV[11]
if not outdated and at < lease.ends and lost <= tonumber(ARGV[4]) and kept > 0 then
  local value, token_at = ARGV[9], tonumber(ARGV[10])
  if token_at > 0 then value = with_token_of(KEYS[4], value, token_at) end
  redis.call('SET', KEYS[1], value, 'PX', text(kept))
  if KEYS[5] then raise_floor(KEYS[5], ARGV[11], kept) end
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
