-- Publishes a purge to all instances. KEYS: bus, instances, rules, note of the republication,
-- generation (of a tag, a site or everything). ARGV: kind, target, reach, instance, maximum
-- entries, random number, TTL of a rule (ms), maximum rules, time that an instance counts as alive
-- (ms), id of an earlier publication, TTL of the note (ms), the newer version if any. Returns {id,
-- 1 if found, number of instances, 1 if published now}, {''} if there are too many rules, or {'!'}
-- if other data is in place of the bus.

-- Returns the id under which the bus already has a purge, or nil.
local function published_id(bus, note, place, random)
  local again = redis.pcall('GET', note)
  if type(again) == 'string' and string.match(again, '^%d+%-%d+$') then return again end
  local entry = redis.call('XRANGE', bus, place, place)[1]
  if not entry then return nil end
  local is_chained = false
  for at = 1, #entry[2], 2 do
    if entry[2][at] == 'e' and entry[2][at + 1] == random then return place end
    if entry[2][at] == 'p' then is_chained = true end
  end
  -- Requests of other programs have no random number.
  if not is_chained then return place end
  return nil
end

local last, at = last_of(KEYS[1]), now()
if not last then return { '!' } end
local alive = redis.pcall('ZCOUNT', KEYS[2], text(at - ARGV[9]), '+inf')
if type(alive) ~= 'number' then alive = 0 end
if ARGV[10] ~= '' then
  local place = published_id(KEYS[1], KEYS[4], ARGV[10], ARGV[6])
  if place then return { place, 1, alive, 0 } end
end
if ARGV[1] == 'prefix' then
  local most = tonumber(ARGV[8])
  if type(redis.pcall('HLEN', KEYS[3])) ~= 'number' then redis.call('DEL', KEYS[3]) end
  if redis.call('HLEN', KEYS[3]) >= most then sweep_rules(KEYS[3], at) end
  if redis.call('HLEN', KEYS[3]) >= most
      and redis.call('HEXISTS', KEYS[3], ARGV[3] .. ARGV[2]) == 0 then
    return { '' }
  end
end
local fields = { 'p', last, 'k', ARGV[1], 'w', ARGV[2], 'r', ARGV[3], 'i', ARGV[4], 'e', ARGV[6] }
if ARGV[12] then
  fields[#fields + 1] = 'v'
  fields[#fields + 1] = ARGV[12]
end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', unpack(fields))
local found = 1
if ARGV[1] == 'prefix' then
  redis.call('HSET', KEYS[3], ARGV[3] .. ARGV[2], id .. ' ' .. text(at + ARGV[7]))
  keep(KEYS[3], tonumber(ARGV[7]))
elseif KEYS[5] then
  found = move_generation(KEYS[5], ARGV[3], id .. '-' .. ARGV[6]) and 1 or 0
end
if ARGV[10] ~= '' then redis.call('SET', KEYS[4], id, 'PX', ARGV[11]) end
return { id, found, alive, 1 }
