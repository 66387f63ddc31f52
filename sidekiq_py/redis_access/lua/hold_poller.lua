-- Takes a lease of one process for all (the quick poller's, the lookout's) if nobody has it, or renews it for the one who has.
--
-- KEYS[1] string  the lease: the identity of its holder
-- ARGV[1] identity   ARGV[2] time to live, ms
--
-- Reply: 1 if the caller has it now, else 0.

local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
