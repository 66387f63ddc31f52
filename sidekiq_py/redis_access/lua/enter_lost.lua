-- Enters an owner again that has jobs in flight and stands in no registry, so that they can be brought back.
--
-- KEYS[1] hash  the owners   KEYS[2] hash  the departed   KEYS[3] string  its lease
-- ARGV[1] owner   ARGV[2] what to write about it   ARGV[3] "1": also with a lease, by which its process is alive
--
-- Reply: 1 if it was entered.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
if ARGV[3] ~= '1' and redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
