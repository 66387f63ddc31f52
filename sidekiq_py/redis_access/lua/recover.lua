-- Takes jobs from a fenced owner and puts them back in their queues as suspects.
--
-- KEYS[1] hash  its in-flight jobs   KEYS[2] hash  suspects   KEYS[3] set  the names of all queues
-- KEYS[4..] lists: the inboxes and queues concerned
-- ARGV[1] time to live of suspects, s
-- ARGV[2..] for each job: field; number of the key that holds it, "1" for the hash; its name there: its field or, in an inbox,
-- its bytes; number of its queue's key; "<deaths>:<first, epoch s>"
--
-- Reply: the fields that this call moved. A job whose queue's key has the wrong type stays, and does not hold up the others.

--@part may_remove

-- Where a queue's name starts in its key: "queue:" is as long as "queues", also after a namespace.
local NAME = #KEYS[3] + 1
local moved = {}

local function put_back(job, queue, record)
  if type(redis.pcall('RPUSH', queue, job)) ~= 'number' then return false end
  redis.pcall('SADD', KEYS[3], string.sub(queue, NAME))
  -- An error is ignored: without this record the job only counts as less suspect, but with an error here it would be stuck.
  redis.pcall('HSET', KEYS[2], redis.sha1hex(job), record)
  return true
end

for i = 2, #ARGV, 5 do
  local source, name, queue = KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], KEYS[tonumber(ARGV[i + 3])]
  local is_listed = ARGV[i + 1] ~= '1'
  local job
  if is_listed then job = redis.call('LPOS', source, name) and name else job = redis.call('HGET', source, name) end
  if job and put_back(job, queue, ARGV[i + 4]) then
    if is_listed then redis.call('LREM', source, 1, name) else redis.call('HDEL', source, name) end
    moved[#moved + 1] = ARGV[i]
  end
end
redis.pcall('EXPIRE', KEYS[2], ARGV[1])
return moved
