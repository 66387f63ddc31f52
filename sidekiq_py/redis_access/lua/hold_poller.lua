-- Takes a lease that one process holds for the fleet (the quick poller's or the lookout's) if it is free, or renews it for its
-- holder.
--
-- KEYS[1] string  the lease: the identity of its holder
-- ARGV[1] identity   ARGV[2] time to live, ms   ARGV[3] the longest that another's lease may last, ms
--
-- Reply: 1 if the caller holds it now, else 0.

local holder = redis.call('GET', KEYS[1])
-- Without an end, or with one that is far off, it is not one of ours: a copy of Redis may have lost the end, another program wrote it,
-- or the clock of Redis was set back when its holder died. A user with the rights of an earlier release may lack PTTL.
if holder and holder ~= ARGV[1] then
  local left_ms = redis.pcall('PTTL', KEYS[1])
  if type(left_ms) ~= 'number' or (left_ms >= 0 and left_ms <= ARGV[3] + 0) then return 0 end
end
-- Changes nothing, as SET replaces it anyway. But once a script has written, Redis does not refuse its writes for lack of memory:
-- the jobs of dead workers must be recovered in a full Redis, too.
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
