-- Renews an owner's lease, unless the owner was recovered. If Redis has lost the registry, the owner is entered again.
--
-- KEYS[1] hash  the owners   KEYS[2] string  the lease
-- ARGV[1] owner   ARGV[2] its entry   ARGV[3] lease, ms
--
-- Reply: 1, or 0 if the owner was recovered.

local is_entered = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1
-- A fence removes entry and lease in one step. So an owner that still has its lease was not fenced.
if not is_entered and redis.call('EXISTS', KEYS[2]) == 0 then return 0 end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory: a live owner must be able
-- to keep its lease.
redis.call('HDEL', KEYS[1], '')
if not is_entered then redis.call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
return 1
