-- Moves jobs from the tail of a queue, where the next to run stands, behind all that wait in another: their order stays.
--
-- KEYS[1] list  from   KEYS[2] list  to   KEYS[3] set  the names of all queues
-- ARGV[1] at most so many
--
-- Reply: how many were moved.
--
-- Each job goes by LMOVE, so whatever ends the script (a full Redis, a key of a foreign type) finds it in one of the lists.

if redis.call('LLEN', KEYS[1]) == 0 then return 0 end
-- The name begins behind "queue:", which is as long as "queues", behind a namespace too.
redis.call('SADD', KEYS[3], string.sub(KEYS[2], #KEYS[3] + 1))
local moved = 0
while moved < tonumber(ARGV[1]) and redis.call('LMOVE', KEYS[1], KEYS[2], 'RIGHT', 'LEFT') do moved = moved + 1 end
return moved
