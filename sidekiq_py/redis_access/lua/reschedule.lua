-- Gives a member of a sorted set another score, and rewrites its bytes if Ruby would write them differently.
--
-- KEYS[1] zset
-- ARGV[1] the member's exact bytes   ARGV[2] score   ARGV[3] the member's new bytes
--
-- Reply: 1, or 0 if the member is no longer there; nothing was written then.
--
-- The new member is written before the old one is removed, so an error in between (out of memory) leaves the job where it was.

--@part forbids_zrem

if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
if ARGV[3] ~= ARGV[1] and forbids_zrem() then return redis.error_reply(forbids_zrem()) end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[3])
if ARGV[3] ~= ARGV[1] then redis.call('ZREM', KEYS[1], ARGV[1]) end
return 1
