-- Renews an owner's lease, unless the owner was recovered.
--
-- KEYS[1] hash  the owners   KEYS[2] string  the lease
-- ARGV[1] owner   ARGV[2] lease, ms
--
-- Reply: 1, or 0 if the owner is no longer in the registry.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory: a live owner must be able
-- to keep its lease.
redis.call('HDEL', KEYS[1], '')
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
