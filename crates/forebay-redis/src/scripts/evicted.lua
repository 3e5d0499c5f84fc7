-- How many names the server has dropped for want of room. KEYS: leases, to ask the right one.
local stats = redis.pcall('INFO', 'stats')
return tonumber(type(stats) == 'string' and string.match(stats, 'evicted_keys:(%d+)')) or 0
