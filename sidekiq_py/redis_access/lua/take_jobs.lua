-- Takes chosen jobs out of a queue, each only if it is still there: to another queue, behind all that wait there, or for good.
--
-- KEYS[1] list  from   KEYS[2] set  the names of all queues   KEYS[3] list  to; left out to delete
-- ARGV[1] a text that is no job and stands in no queue
-- ARGV[2..] for each job: its bytes; how many jobs run before it, or more, "-1" where nobody knows
--
-- Reply: for each 1 (taken), or 0 (not there, or further from the tail than told); or the error that Redis refused a push by.
--
-- To look for one job among a million takes Redis milliseconds, so each is looked at where it stood when it was read, less
-- what has gone from the tail since. The places of the others must not change under that, so a job that is taken leaves the
-- text behind, and all of these go at the end, in one walk.

local GONE = ARGV[1]
local drift = 0

-- The place counted from the tail, below 0 as Redis counts from there; nil if the job is not there.
local function place_of(job, before)
  if before >= 0 then
    local guess = -1 - math.max(0, before - drift)
    if redis.call('LINDEX', KEYS[1], guess) == job then return guess end
  end
  local found = redis.call('LPOS', KEYS[1], job, 'RANK', -1, 'MAXLEN', before + 1)
  if not found then return nil end
  local place = found - redis.call('LLEN', KEYS[1])
  if before >= 0 then drift = before + 1 + place end
  return place
end

-- A user who lacks a right is told before anything is done: without LSET a job would stand in both queues, without LREM the
-- text would stay. LPOS and LSET change nothing here, and LREM is refused for the type of the key to those who may use it.
local head = redis.call('LINDEX', KEYS[1], 0)
if head then
  redis.call('LPOS', KEYS[1], head)
  redis.call('LSET', KEYS[1], 0, head)
end
local refused = redis.pcall('LREM', KEYS[2], 1, GONE)
if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end

local replies, taken, failure = {}, 0, nil
for i = 2, #ARGV, 2 do
  local job, done = ARGV[i], 0
  local place = not failure and place_of(job, tonumber(ARGV[i + 1]))
  if place then
    if KEYS[3] then
      local name = string.sub(KEYS[3], #KEYS[2] + 1)
      local entered, pushed = redis.pcall('SADD', KEYS[2], name), nil
      failure = type(entered) == 'table' and entered
      -- In the new queue before it leaves the old one.
      if not failure then pushed = redis.pcall('LPUSH', KEYS[3], job) end
      failure = failure or (type(pushed) == 'table' and pushed)
    end
    if not failure then
      redis.call('LSET', KEYS[1], place, GONE)
      taken = taken + 1
      done = 1
    end
  end
  replies[#replies + 1] = done
end
if taken > 0 then redis.call('LREM', KEYS[1], -taken, GONE) end
if failure and taken == 0 then return failure end
return replies
