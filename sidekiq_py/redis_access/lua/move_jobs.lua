-- Moves chosen jobs of a queue behind all that wait in another, each only if it is still there.
--
-- KEYS[1] list  from   KEYS[2] list  to   KEYS[3] set  the names of all queues
-- ARGV[1..] their bytes, what runs first in front
--
-- Reply: for each 1 (moved) or 0 (not there any more).
--
-- A job is in the new queue before it leaves the old one: a push that Redis refuses, as when it is full, ends the script.

local replies = {}
for i, job in ipairs(ARGV) do
  replies[i] = 0
  if redis.call('LPOS', KEYS[1], job, 'RANK', -1) then
    redis.call('SADD', KEYS[3], string.sub(KEYS[2], #KEYS[3] + 1))
    redis.call('LPUSH', KEYS[2], job)
    redis.call('LREM', KEYS[1], -1, job)
    replies[i] = 1
  end
end
return replies
