-- Makes way for a version: remembers which is the oldest that may stand there from now on. What
-- `remove` does is behind this.
-- KEYS: as for `remove`, floor. ARGV: as for `remove`, version, how long it is remembered (ms).
-- Answers -1 if one that is as new is known; else as `remove` does.
if floor_of(KEYS[4]) >= ARGV[2] then return -1 end
raise_floor(KEYS[4], ARGV[2], tonumber(ARGV[3]))
