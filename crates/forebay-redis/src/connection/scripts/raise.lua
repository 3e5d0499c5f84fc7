-- Raises the version floor; the text of `remove` follows. KEYS: as for `remove`, floor. ARGV: as
-- for `remove`, version, TTL of the floor (ms). Returns -1 if the known version is as new,
-- otherwise the result of `remove`.
if floor_of(KEYS[4]) >= ARGV[2] then return -1 end
raise_floor(KEYS[4], ARGV[2], tonumber(ARGV[3]))
