-- Takes jobs from an owner that was shut out: back to their queues as suspects, or to the dead set.
--
-- KEYS[1] hash  its in-flight jobs   KEYS[2] hash  suspects   KEYS[3] set  the names of all queues
-- KEYS[4] zset  dead   KEYS[5..] lists: the inboxes and queues concerned
-- ARGV[1] time to live of suspects, s   ARGV[2] now, epoch s   ARGV[3] oldest time kept in dead   ARGV[4] last rank cut from dead
-- ARGV[5..] for each job: field; number of the key where it stands, "1" for the hash; what names it there: its field, or in an
-- inbox its bytes; number of its queue's key or "0" for dead; "<deaths>:<first, epoch s>" or what is to stand in dead
--
-- Reply: the fields that were moved by this call. One whose queue's key is of a foreign type stays, and holds up no other.

-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[1], '')

-- Where a queue's name begins in its key: "queue:" is as long as "queues", behind a namespace too.
local NAME = #KEYS[3] + 1
local moved = {}
local cut = false

local function dead_letter(job, member)
  if type(redis.pcall('ZADD', KEYS[4], ARGV[2], member)) ~= 'number' then return false end
  redis.pcall('HDEL', KEYS[2], redis.sha1hex(job))
  cut = true
  return true
end

local function put_back(job, queue, record)
  if type(redis.pcall('RPUSH', queue, job)) ~= 'number' then return false end
  redis.pcall('SADD', KEYS[3], string.sub(queue, NAME))
  -- Without this memory the job would only be less suspect; with an error here it would be stuck.
  redis.pcall('HSET', KEYS[2], redis.sha1hex(job), record)
  return true
end

for i = 5, #ARGV, 5 do
  local source, name, number, text = KEYS[tonumber(ARGV[i + 1])], ARGV[i + 2], tonumber(ARGV[i + 3]), ARGV[i + 4]
  local is_listed = ARGV[i + 1] ~= '1'
  local job
  if is_listed then job = redis.call('LPOS', source, name) and name else job = redis.call('HGET', source, name) end
  local is_moved = false
  if job then
    if number == 0 then is_moved = dead_letter(job, text) else is_moved = put_back(job, KEYS[number], text) end
  end
  if is_moved then
    if is_listed then redis.call('LREM', source, 1, name) else redis.call('HDEL', source, name) end
    moved[#moved + 1] = ARGV[i]
  end
end
redis.pcall('EXPIRE', KEYS[2], ARGV[1])
if cut then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', ARGV[3])
  redis.pcall('ZREMRANGEBYRANK', KEYS[4], '0', ARGV[4])
end
return moved
