-- Returns the number of keys that the server has evicted. KEYS: leases, which selects the server.
local stats = redis.pcall('INFO', 'stats')
return tonumber(type(stats) == 'string' and string.match(stats, 'evicted_keys:(%d+)')) or 0
