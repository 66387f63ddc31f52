-- Moves members of a set of waiting jobs to their destinations, each only if it is still in the set.
--
-- KEYS[1] zset  the set: retry, schedule or dead   KEYS[2] zset  dead   KEYS[3] set  the names of all queues
-- KEYS[4] zset  schedule   KEYS[5..] lists: the queues concerned
-- ARGV[1] now, epoch s   ARGV[2] oldest time kept in dead   ARGV[3] last rank cut from dead
-- ARGV[4..] for each: member, number of its queue's key ("0" for dead, "-1" for nowhere, "-2" for schedule), bytes to push,
--   their score in schedule
--
-- Reply: for each member 1 (moved), 0 (no longer in the set), or the text of the error that kept it in the set.
--
-- A job is in its queue before it leaves the set, and a member that cannot be moved does not hold up those after it.

-- Where a queue's name starts in its key: "queue:" is as long as "queues", also after a namespace.
local NAME = #KEYS[3] + 1

local function refused(reply)
  return type(reply) == 'table' and reply.err
end

local function push(number, bytes)
  local queue = KEYS[number]
  return refused(redis.pcall('SADD', KEYS[3], string.sub(queue, NAME))) or refused(redis.pcall('LPUSH', queue, bytes))
end

--@part forbids_zrem

local has_dead_lettered = false
local function dead_letter(member)
  has_dead_lettered = true
  return forbids_zrem() or refused(redis.pcall('ZADD', KEYS[2], ARGV[1], member))
end

local function postpone(score, bytes)
  return forbids_zrem() or refused(redis.pcall('ZADD', KEYS[4], score, bytes))
end

local replies = {}
for i = 4, #ARGV, 4 do
  local member, number = ARGV[i], tonumber(ARGV[i + 1])
  local reply = 0
  if redis.call('ZSCORE', KEYS[1], member) then
    local failure, stays = false, false
    if number > 0 then
      failure = push(number, ARGV[i + 2])
    elseif number == 0 then
      failure = dead_letter(member)
    elseif number == -2 then
      failure = postpone(ARGV[i + 3], ARGV[i + 2])
      -- The same bytes in the same set: only their score has changed.
      stays = KEYS[1] == KEYS[4] and member == ARGV[i + 2]
    end
    if not failure and not stays then
      failure = refused(redis.pcall('ZREM', KEYS[1], member))
      -- Otherwise, for a user who may not use ZREM, each pass would push the job again.
      if failure and number > 0 then redis.pcall('LPOP', KEYS[number]) end
    end
    reply = failure or 1
  end
  replies[#replies + 1] = reply
end
if has_dead_lettered then
  redis.pcall('ZREMRANGEBYSCORE', KEYS[2], '-inf', ARGV[2])
  redis.pcall('ZREMRANGEBYRANK', KEYS[2], '0', ARGV[3])
end
return replies
