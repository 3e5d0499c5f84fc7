-- Replaces the claim of one member of a budget, and grants an allowance. KEYS: hash of claims. ARGV:
-- member, asked slots and rate, held slots and rate, wanted slots and rate, all slots and rate,
-- duration (ms), epoch of its allowance or 0. A duration of 0 removes the claim.
-- Returns 0, granted slots and rate, number of the others before it, current second, epoch of the hash,
-- 1 if that is a duration ago, and of each other member, in order of their names, held slots and rate and wanted slots and rate; or 1 if other data
-- is in its place, 2 above the maximum number of members.
local MEMBERS_MAX = 1024
local AMOUNT_MAX = 2 ^ 40
local KEPT = 60000

local claims, member = KEYS[1], ARGV[1]
local duration = tonumber(ARGV[10])
if duration == 0 then
  redis.pcall('HDEL', claims, member)
  return { 0 }
end

local at = now()
local found = redis.pcall('HGETALL', claims)
if found.err then return { 1 } end
local born, slots, rate = nil, 0, 0
local before, after = {}, {}
for i = 1, #found, 2 do
  local name, value = found[i], found[i + 1]
  if name == 'born' then
    born = tonumber(value)
  else
    local ends, claim = nil, { string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+)$') }
    ends = tonumber(claim[1])
    if not ends or ends <= at then
      redis.call('HDEL', claims, name)
    elseif name ~= member then
      for part = 2, 5 do claim[part] = math.min(tonumber(claim[part]), AMOUNT_MAX) end
      slots, rate = slots + claim[2], rate + claim[3]
      claim[1] = name
      local others = name < member and before or after
      others[#others + 1] = claim
    end
  end
end
if #before + #after >= MEMBERS_MAX then return { 2 } end
if not born then
  born = at
  redis.call('HSET', claims, 'born', text(at))
end

-- In a new hash, for example after a failure of the server, the claims of other members are missing
-- until they renew them. A member of another epoch gets no more than it held until then.
local is_complete = at >= born + duration
local epoch = tonumber(ARGV[11])
local is_of_another = epoch ~= 0 and epoch ~= born
local function grant(asked, held, total, taken)
  asked, held = tonumber(asked), tonumber(held)
  if is_of_another and not is_complete then asked = held end
  return math.max(held, math.min(asked, tonumber(total) - taken))
end
local granted_slots = grant(ARGV[2], ARGV[4], ARGV[8], slots)
local granted_rate = grant(ARGV[3], ARGV[5], ARGV[9], rate)
local claim = { text(at + duration), text(granted_slots), text(granted_rate), ARGV[6], ARGV[7] }
redis.call('HSET', claims, member, table.concat(claim, ' '))
keep(claims, KEPT)

local reply = { 0, granted_slots, granted_rate, #before, math.floor(at / 1000), born,
  is_complete and 1 or 0 }
for _, others in ipairs({ before, after }) do
  table.sort(others, function(one, other) return one[1] < other[1] end)
  for _, other in ipairs(others) do
    for part = 2, 5 do reply[#reply + 1] = other[part] end
  end
end
return reply
