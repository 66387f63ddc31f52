-- Puts in-flight jobs back to the tail of their queues, where the next fetch finds them first.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2] set  the names of all queues   KEYS[3..] lists: inboxes and queues
-- ARGV[1..] a job's field, or its bytes if it stands in an inbox; number of the key where it stands; number of its queue's
-- key; ...; what is to run first comes last
--
-- Reply: how many were moved. The others were not in flight any more, or their queue's key is of a foreign type.

--@part may_remove

-- Where a queue's name begins in its key: "queue:" is as long as "queues", behind a namespace too.
local NAME = #KEYS[2] + 1
local moved = 0
for i = 1, #ARGV, 3 do
  local name, source, queue = ARGV[i], KEYS[tonumber(ARGV[i + 1])], KEYS[tonumber(ARGV[i + 2])]
  local is_listed = ARGV[i + 1] ~= '1'
  local job
  if is_listed then job = redis.call('LPOS', source, name) and name else job = redis.call('HGET', source, name) end
  if job then
    redis.pcall('SADD', KEYS[2], string.sub(queue, NAME))
    -- A job that cannot go back does not keep the others here.
    if type(redis.pcall('RPUSH', queue, job)) == 'number' then
      if is_listed then redis.call('LREM', source, -1, name) else redis.call('HDEL', source, name) end
      moved = moved + 1
    end
  end
end
return moved
