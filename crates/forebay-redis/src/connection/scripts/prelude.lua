-- Functions for all scripts. Data in Redis is untrusted: a wrong type is an error from `pcall`, and
-- a value that cannot be parsed belongs to another program.
local WAITERS_MAX = 4096
local LEASE_LEN_MAX = 128

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function text(number)
  return string.format('%.0f', number)
end

-- A lease: token of 16 bytes, end, time of the request, and the mark of the load, if it has one.
-- Returns whether other data is in its place, and the lease.
local function lease_of(leases, field)
  local found = redis.pcall('HGET', leases, field)
  if type(found) == 'boolean' then return false, nil end
  if type(found) ~= 'string' or #found > LEASE_LEN_MAX then return true, nil end
  local ends, since, mark = string.match(found, '^(%d+) (%d+) ?([!-~]*)$', 17)
  if not ends then return true, nil end
  local token = string.sub(found, 1, 16)
  return false, { token = token, ends = tonumber(ends), since = tonumber(since), mark = mark }
end

local function keep(name, span)
  if redis.call('PTTL', name) < span then redis.call('PEXPIRE', name, text(span)) end
end

local function put_lease(leases, field, lease)
  local value = lease.token .. text(lease.ends) .. ' ' .. text(lease.since)
  if lease.mark and lease.mark ~= '' then value = value .. ' ' .. lease.mark end
  redis.call('HSET', leases, field, value)
end

-- Returns the version floor as twenty digits; the empty string is below every version.
local function floor_of(name)
  local floor = redis.pcall('GET', name)
  if type(floor) ~= 'string' or not string.match(floor, '^%d+$') or #floor ~= 20 then return '' end
  return floor
end

-- The floor is kept at least as long as before.
local function raise_floor(name, version, span)
  local left = redis.call('PTTL', name)
  redis.call('SET', name, version, 'PX', text(math.max(span, left)))
end

-- Returns the digest by which waiters know a lease. The token itself is known to its holder only.
local function name_of(token)
  return string.sub(redis.sha1hex(token), 1, 16)
end

-- A message that concerns no lease has a digest of zeros.
local function message(kind, leases, field, token, rest)
  local name = token and name_of(token) or string.rep('0', 16)
  return kind .. struct.pack('<H', #leases) .. leases .. struct.pack('B', #field) .. field
    .. name .. rest
end

-- Wakes the waiters of a field, or of all fields if it is nil.
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
