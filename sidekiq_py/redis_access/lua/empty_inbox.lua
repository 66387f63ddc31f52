-- Puts a job that was moved into an inbox and never claimed back to its queue.
--
-- KEYS[1] list  the inbox   KEYS[2] list  the queue   KEYS[3] set  the names of all queues
--
-- Reply: how many there were.

-- Removes nothing, as the start lies behind the end. A script that has written is not refused for want of memory any more.
redis.call('LTRIM', KEYS[1], 0, -1)

-- "queue:" is as long as "queues", behind a namespace too.
local name = string.sub(KEYS[2], #KEYS[3] + 1)
local moved = 0
while true do
  local job = redis.call('LINDEX', KEYS[1], 0)
  if not job then return moved end
  redis.call('SADD', KEYS[3], name)
  redis.call('RPUSH', KEYS[2], job)
  redis.call('LPOP', KEYS[1])
  moved = moved + 1
end
