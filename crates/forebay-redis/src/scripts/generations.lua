-- The eras of a tag, a site and all. KEYS: bus, rules, eras.
-- ARGV: where the bus stood at the departure (nothing: it is only read), random, how long the eras
-- are kept at least (ms), rules at most, entries at most.
-- Answers {where the bus stands, eras, rules, entries since then}; nothing in the place of the
-- entries if some of them are missing; {'!'} where something foreign stands.
local last = last_of(KEYS[1])
local rules = rules_of(KEYS[2], tonumber(ARGV[4]))
if not last or not rules then return { '!' } end
local eras = {}
for at = 3, #KEYS do
  local hard, soft = era_of(KEYS[at])
  if ARGV[1] ~= '' then
    if hard then
      keep(KEYS[at], tonumber(ARGV[3]))
    else
      hard = last .. '-' .. ARGV[2]
      soft = hard
      redis.call('SET', KEYS[at], hard .. ' ' .. soft, 'PX', ARGV[3])
    end
  end
  eras[#eras + 1] = hard and (hard .. ' ' .. soft) or false
end
local since = false
if ARGV[1] ~= '' then
  local most = tonumber(ARGV[5])
  local entries = redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', most + 1)
  local is_whole = ARGV[1] == last
  if entries[1] then
    local fields = entries[1][2]
    for at = 1, #fields, 2 do
      if fields[at] == 'p' and fields[at + 1] == ARGV[1] then is_whole = true end
    end
    -- What another program has put there names nothing before it.
    if redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then is_whole = true end
  end
  if is_whole and #entries <= most then since = entries end
end
return { last, eras, rules, since }
