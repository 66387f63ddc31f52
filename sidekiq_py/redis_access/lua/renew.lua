-- Renews an owner's lease, unless the owner was recovered.
--
-- KEYS[1] hash  the owners   KEYS[2] string  the lease
-- ARGV[1] owner   ARGV[2] lease, ms
--
-- Reply: 1, or 0 if the owner is no longer entered.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
-- Removes nothing. A script that has written is not refused for want of memory any more: who lives must be seen to live.
redis.call('HDEL', KEYS[1], '')
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 1
