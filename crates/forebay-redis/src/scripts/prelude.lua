-- What the scripts share. Nothing that stands in Redis is trusted: wrong types are answers of
-- `pcall`, and what cannot be read is foreign.
local WAITERS_MAX = 4096
local LEASE_LEN_MAX = 64

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

-- A lease: 16 bytes of token, until when it stands, and since when it was asked for. Two results:
-- whether something foreign stands there, and the lease.
local function lease_of(leases, field)
  local found = redis.pcall('HGET', leases, field)
  if type(found) == 'boolean' then return false, nil end
  if type(found) ~= 'string' or #found > LEASE_LEN_MAX then return true, nil end
  local ends, since = string.match(found, '^(%d+) (%d+)$', 17)
  if not ends then return true, nil end
  return false, { token = string.sub(found, 1, 16), ends = tonumber(ends), since = tonumber(since) }
end

local function keep(name, span)
  if redis.call('PTTL', name) < span then redis.call('PEXPIRE', name, text(span)) end
end

local function put_lease(leases, field, lease)
  redis.call('HSET', leases, field, lease.token .. text(lease.ends) .. ' ' .. text(lease.since))
end

-- The oldest version that may stand under a key, as twenty digits; nothing is older than anything.
local function floor_of(name)
  local floor = redis.pcall('GET', name)
  if type(floor) ~= 'string' or not string.match(floor, '^%d+$') or #floor ~= 20 then return '' end
  return floor
end

-- Remembered for as long as it was before, at least.
local function raise_floor(name, version, span)
  local left = redis.call('PTTL', name)
  redis.call('SET', name, version, 'PX', text(math.max(span, left)))
end

-- By what those who wait know a lease: its token is for its holder alone.
local function name_of(token)
  return string.sub(redis.sha1hex(token), 1, 16)
end

-- A message that is about no lease names one of zeros.
local function message(kind, leases, field, token, rest)
  local name = token and name_of(token) or string.rep('0', 16)
  return kind .. struct.pack('<H', #leases) .. leases .. struct.pack('B', #field) .. field
    .. name .. rest
end

-- Wakes who waits for a field; for all of them if there is none.
local function wake(waiters, channels, field, say)
  local count = redis.pcall('SCARD', waiters)
  if type(count) ~= 'number' or count == 0 then return end
  if count > WAITERS_MAX then return redis.call('DEL', waiters) end
  for _, one in ipairs(redis.call('SMEMBERS', waiters)) do
    local its = string.sub(one, 33)
    if #one >= 32 and #one <= 64 and (field == nil or its == field) then
      redis.pcall('PUBLISH', channels .. string.sub(one, 1, 32), say(its))
      redis.call('SREM', waiters, one)
    end
  end
end
