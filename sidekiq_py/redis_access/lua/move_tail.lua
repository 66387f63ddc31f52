-- Moves jobs from the tail of a queue, where the next job to run is, behind all jobs of another queue, and keeps their order.
--
-- KEYS[1] list  from   KEYS[2] list  to   KEYS[3] set  the names of all queues
-- ARGV[1] how many jobs at most   ARGV[2] how many bytes, about
--
-- Reply: how many were moved; at least one, if there is one.
--
-- Each job is moved by LMOVE, so if an error ends the script (a full Redis, a key of the wrong type), every job is in one list.

if redis.call('LLEN', KEYS[1]) == 0 then return 0 end
-- The name starts after "queue:", which is as long as "queues", also after a namespace.
redis.call('SADD', KEYS[3], string.sub(KEYS[2], #KEYS[3] + 1))
local moved, bytes_left = 0, tonumber(ARGV[2])
while moved < tonumber(ARGV[1]) and bytes_left > 0 do
  local job = redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT')
  if not job then break end
  moved = moved + 1
  bytes_left = bytes_left - #job
end
return moved
