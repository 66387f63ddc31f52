-- Gives up a lease of one process for all (the quick poller's, the lookout's), if the caller has it.
--
-- KEYS[1] string  the lease: the identity of its holder
-- ARGV[1] identity
--
-- Reply: 1 if it was given up, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
