-- Puts in-flight jobs back to the tail of their queues, where the next fetch finds them first.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2] set  the names of all queues   KEYS[3..] lists: the queues concerned
-- ARGV[1..] field, number of its queue's key, field, number, ...; what is to run first comes last
--
-- Reply: the fields that were still in flight.

local moved = {}
for i = 1, #ARGV, 2 do
  local field, queue = ARGV[i], KEYS[tonumber(ARGV[i + 1])]
  local job = redis.call('HGET', KEYS[1], field)
  if job then
    redis.call('SADD', KEYS[2], string.sub(queue, 7))
    redis.call('RPUSH', queue, job)
    redis.call('HDEL', KEYS[1], field)
    moved[#moved + 1] = field
  end
end
return moved
