-- Gives a member of a sorted set another score, and another spelling where Ruby would spell it otherwise.
--
-- KEYS[1] zset
-- ARGV[1] the member's exact bytes   ARGV[2] score   ARGV[3] the member as it is to stand there
--
-- Reply: 1, or 0 if the member is not there any more, and nothing was written.
--
-- The new one is written before the old one goes: an error in between (out of memory) leaves the job where it was.

--@part forbids_zrem

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] ~= ARGV[1] and forbids_zrem() then return redis.error_reply(forbids_zrem()) end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])
if ARGV[3] ~= ARGV[1] then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
