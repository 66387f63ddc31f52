-- Shuts an owner out, so that its jobs can be taken: it can no longer fetch or claim.
--
-- KEYS[1] hash  the owners   KEYS[2] string  its lease   KEYS[3] hash  the departed
-- ARGV[1] owner   ARGV[2] "1": it is known to be dead or leaves by itself; "0": only if its lease is missing   ARGV[3] now, epoch s
--
-- Reply: 1 if this call shut it out.

local about = redis.call('HGET', KEYS[1], ARGV[1])
if not about then return 0 end
if ARGV[2] ~= '1' and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' ' .. about)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
