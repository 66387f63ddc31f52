-- Enters an owner again that has jobs in flight but is in no registry, so that its jobs can be recovered.
--
-- KEYS[1] hash  the owners   KEYS[2] hash  the departed   KEYS[3] string  its lease
-- ARGV[1] owner   ARGV[2] its entry   ARGV[3] "1": also enter it if it has a lease, which means that its process is alive
--
-- Reply: 1 if it was entered.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 or redis.call('HEXISTS', KEYS[2], ARGV[1]) == 1 then return 0 end
if ARGV[3] ~= '1' and redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory.
redis.call('HDEL', KEYS[1], '')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
