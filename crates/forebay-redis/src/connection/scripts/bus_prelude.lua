-- Functions for scripts that use the bus and generations.
local GENERATION_LEN_MAX = 128

local function last_of(bus)
  local last = redis.pcall('XREVRANGE', bus, '+', '-', 'COUNT', 1)
  if last.err then return nil end
  if last[1] then return last[1][1] end
  return '0-0'
end

-- Returns the hard and the soft token of a generation.
local function generation_of(name)
  local generation = redis.pcall('GET', name)
  if type(generation) ~= 'string' or #generation > GENERATION_LEN_MAX then return nil end
  local token = '(%d+%-%d+%-' .. string.rep('%x', 16) .. ')'
  return string.match(generation, '^' .. token .. ' ' .. token .. '$')
end

-- Replaces a token of a generation. Returns false if there is no generation.
local function move_generation(name, reach, token)
  local hard, soft = generation_of(name)
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

-- Returns all rules, or nil if there are more than allowed.
local function rules_of(rules, most)
  local count = redis.pcall('HLEN', rules)
  if type(count) ~= 'number' or count > most then return nil end
  return redis.call('HGETALL', rules)
end
