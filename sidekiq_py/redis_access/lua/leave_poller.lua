-- Releases a lease that one process holds for the fleet (the quick poller's or the lookout's), if the caller holds it.
--
-- KEYS[1] string  the lease: the identity of its holder
-- ARGV[1] identity
--
-- Reply: 1 if it was released, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
