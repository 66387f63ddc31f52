-- Takes jobs from an owner that was shut out: back to their queues as suspects, or to the dead set.
--
-- KEYS[1] hash  its in-flight jobs   KEYS[2] hash  suspects   KEYS[3] set  the names of all queues
-- KEYS[4] zset  dead   KEYS[5..] lists: the queues concerned
-- ARGV[1] time to live of suspects, s   ARGV[2] now, epoch s   ARGV[3] oldest time kept in dead   ARGV[4] last rank cut from dead
-- ARGV[5..] field, number of its queue's key or "0" for dead, "<deaths>:<first, epoch s>", ...
--
-- Reply: the fields that were moved by this call.

local moved = {}
local cut = false
for i = 5, #ARGV, 3 do
  local field, number, record = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2]
  local job = redis.call('HGET', KEYS[1], field)
  if job then
    local digest = redis.sha1hex(job)
    if number == 0 then
      redis.call('ZADD', KEYS[4], ARGV[2], job)
      redis.call('HDEL', KEYS[2], digest)
      cut = true
    else
      local queue = KEYS[number]
      -- Without this memory the job would only be less suspect; with an error here it would be stuck.
      redis.pcall('HSET', KEYS[2], digest, record)
      redis.call('SADD', KEYS[3], string.sub(queue, 7))
      redis.call('RPUSH', queue, job)
    end
    redis.call('HDEL', KEYS[1], field)
    moved[#moved + 1] = field
  end
end
redis.pcall('EXPIRE', KEYS[2], ARGV[1])
if cut then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[4], '-inf', ARGV[3])
  redis.pcall('ZREMRANGEBYRANK', KEYS[4], '0', ARGV[4])
end
return moved
