-- Returns the generations of tags, a site and everything. KEYS: bus, rules, generations. ARGV: bus
-- position at the departure (empty to read only), random number, minimum TTL of the generations
-- (ms), maximum rules, maximum entries. Returns {end of the bus, generations, rules, entries since
-- the departure}; false instead of the entries if some are missing; {'!'} if other data is in place
-- of the bus or rules.
local last = last_of(KEYS[1])
local rules = rules_of(KEYS[2], tonumber(ARGV[4]))
if not last or not rules then return { '!' } end
local generations = {}
for at = 3, #KEYS do
  local hard, soft = generation_of(KEYS[at])
  if ARGV[1] ~= '' then
    if hard then
      keep(KEYS[at], tonumber(ARGV[3]))
    else
      hard = last .. '-' .. ARGV[2]
      soft = hard
      redis.call('SET', KEYS[at], hard .. ' ' .. soft, 'PX', ARGV[3])
    end
  end
  generations[#generations + 1] = hard and (hard .. ' ' .. soft) or false
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
    -- Requests of other programs name no predecessor.
    if redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1])[1] then is_whole = true end
  end
  if is_whole and #entries <= most then since = entries end
end
return { last, generations, rules, since }
