-- Requeues in-flight jobs at the tail of their queues, where the next fetch finds them first.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2] set  the names of all queues   KEYS[3..] lists: inboxes and queues
-- ARGV[1..] for each job: its field, or its bytes if it is in an inbox; the number of the key that holds it; the number of its
-- queue's key. The job that should run first comes last
--
-- Reply: how many were moved. The others were no longer in flight, or the key of their queue or inbox has the wrong type.

--@part may_remove

-- Where a queue's name starts in its key: "queue:" is as long as "queues", also after a namespace.
local NAME = #KEYS[2] + 1
local moved = 0
for i = 1, #ARGV, 3 do
  local name, source, queue = ARGV[i], KEYS[tonumber(ARGV[i + 1])], KEYS[tonumber(ARGV[i + 2])]
  local is_listed = ARGV[i + 1] ~= '1'
  local found = redis.pcall(is_listed and 'LPOS' or 'HGET', source, name)
  if type(found) == 'table' then
    -- An inbox that another program has overwritten must not keep the others here. Any other error would concern them, too.
    if string.sub(found.err, 1, 9) ~= 'WRONGTYPE' then return found end
  elseif found then
    local job = is_listed and name or found
    redis.pcall('SADD', KEYS[2], string.sub(queue, NAME))
    -- Nor must a job that cannot go back.
    if type(redis.pcall('RPUSH', queue, job)) == 'number' then
      if is_listed then redis.call('LREM', source, -1, name) else redis.call('HDEL', source, name) end
      moved = moved + 1
    end
  end
end
return moved
