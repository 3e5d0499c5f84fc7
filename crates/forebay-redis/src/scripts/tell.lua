-- Tells all instances of a purge. KEYS: bus, instances, rules, era (of a tag, a site or all).
-- ARGV: kind, what, reach, instance, entries at most, random, how long a rule stands (ms), rules
-- at most, how long an instance counts as alive (ms).
-- Answers {id, whether it was found, instances}, {''} where there is no room for another rule, or
-- {'!'} where something foreign stands.
local last, at = last_of(KEYS[1]), now()
if not last then return { '!' } end
if ARGV[1] == 'prefix' then
  local most = tonumber(ARGV[8])
  if type(redis.pcall('HLEN', KEYS[3])) ~= 'number' then redis.call('DEL', KEYS[3]) end
  if redis.call('HLEN', KEYS[3]) >= most then sweep_rules(KEYS[3], at) end
  if redis.call('HLEN', KEYS[3]) >= most
      and redis.call('HEXISTS', KEYS[3], ARGV[3] .. ARGV[2]) == 0 then
    return { '' }
  end
end
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], '*', 'p', last, 'k', ARGV[1],
  'w', ARGV[2], 'r', ARGV[3], 'i', ARGV[4], 'e', ARGV[6])
local found = 1
if ARGV[1] == 'prefix' then
  redis.call('HSET', KEYS[3], ARGV[3] .. ARGV[2], id .. ' ' .. text(at + ARGV[7]))
  keep(KEYS[3], tonumber(ARGV[7]))
elseif KEYS[4] then
  found = move_era(KEYS[4], ARGV[3], id .. '-' .. ARGV[6]) and 1 or 0
end
local alive = redis.pcall('ZCOUNT', KEYS[2], text(at - ARGV[9]), '+inf')
return { id, found, type(alive) == 'number' and alive or 0 }
