-- Removes jobs that succeeded from the in-flight hash, and counts those that were still there.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2] string  stat:processed   KEYS[3] string  stat:processed:<day>
-- ARGV[1] time to live of the day's counter, s   ARGV[2..] fields
--
-- Reply: how many were removed.

local removed = redis.call('HDEL', KEYS[1], unpack(ARGV, 2))
if removed > 0 then
  -- Counters may fail (out of memory, a foreign type): the jobs are done all the same.
  redis.pcall('INCRBY', KEYS[2], removed)
  if redis.pcall('INCRBY', KEYS[3], removed) == removed then redis.pcall('EXPIRE', KEYS[3], ARGV[1]) end
end
return removed
