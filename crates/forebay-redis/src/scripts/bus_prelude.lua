-- What the scripts share that know the bus and the eras.
local ERA_LEN_MAX = 128

local function last_of(bus)
  local last = redis.pcall('XREVRANGE', bus, '+', '-', 'COUNT', 1)
  if last.err then return nil end
  if last[1] then return last[1][1] end
  return '0-0'
end

-- An era: the hard token and the soft one.
local function era_of(name)
  local era = redis.pcall('GET', name)
  if type(era) ~= 'string' or #era > ERA_LEN_MAX then return nil end
  local token = '(%d+%-%d+%-' .. string.rep('%x', 16) .. ')'
  return string.match(era, '^' .. token .. ' ' .. token .. '$')
end

-- Puts the token of a purge in the place of the one before. False if nobody has an era.
local function move_era(name, reach, token)
  local hard, soft = era_of(name)
  if not hard then return redis.call('DEL', name) == 1 end
  if reach == 'h' then hard = token else soft = token end
  redis.call('SET', name, hard .. ' ' .. soft, 'KEEPTTL')
  return true
end

local function sweep_rules(rules, at)
  local all = redis.call('HGETALL', rules)
  for each = 1, #all, 2 do
    local ends = string.match(all[each + 1], '^%d+%-%d+ (%d+)$')
    if not ends or tonumber(ends) <= at then redis.call('HDEL', rules, all[each]) end
  end
end

-- All rules, or nothing where there are more than there can be.
local function rules_of(rules, most)
  local count = redis.pcall('HLEN', rules)
  if type(count) ~= 'number' or count > most then return nil end
  return redis.call('HGETALL', rules)
end
