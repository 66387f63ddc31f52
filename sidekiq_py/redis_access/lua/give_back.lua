-- Puts in-flight jobs back to the tail of their queues, where the next fetch finds them first.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2] set  the names of all queues   KEYS[3..] lists: the queues concerned
-- ARGV[1..] field, number of its queue's key, field, number, ...; what is to run first comes last
--
-- Reply: the fields that were moved. The others were not in flight any more, or their queue's key is of a foreign type.

-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[1], '')

-- Where a queue's name begins in its key: "queue:" is as long as "queues", behind a namespace too.
local NAME = #KEYS[2] + 1
local moved = {}
for i = 1, #ARGV, 2 do
  local field, queue = ARGV[i], KEYS[tonumber(ARGV[i + 1])]
  local job = redis.call('HGET', KEYS[1], field)
  if job then
    redis.pcall('SADD', KEYS[2], string.sub(queue, NAME))
    -- A job that cannot go back does not keep the others here.
    if type(redis.pcall('RPUSH', queue, job)) == 'number' then
      redis.call('HDEL', KEYS[1], field)
      moved[#moved + 1] = field
    end
  end
end
return moved
