-- Fences an owner so that its jobs can be taken: it can no longer fetch or claim.
--
-- KEYS[1] hash  the owners   KEYS[2] string  its lease   KEYS[3] hash  the departed
-- ARGV[1] owner   ARGV[2] "1": it is known to be dead or is leaving; "0": only if its lease is missing   ARGV[3] now, epoch s
--
-- Reply: 1 if this call fenced it, else 0.

local about = redis.call('HGET', KEYS[1], ARGV[1])
if not about then return 0 end
if ARGV[2] ~= '1' and redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3] .. ' ' .. about)
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('DEL', KEYS[2])
return 1
