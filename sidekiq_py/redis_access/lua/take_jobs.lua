-- Moves chosen jobs from one queue behind all jobs of another queue, or deletes them. Each job is taken only if it is still there.
--
-- KEYS[1] list  from   KEYS[2] set  the names of all queues   KEYS[3] list  to; absent to delete
-- ARGV[1] a text that is not a job and is in no queue   ARGV[2] how many steps over jobs the searches may take
-- ARGV[3..] for each job: its bytes; how many jobs run before it at most, "-1" if that is unknown
--
-- Reply: for each job 1 (taken) or 0 (not found, or further from the tail than given); or the error that refused a push.
--
-- A search for one job among a million takes Redis some 70 ms. So each job is looked up where it was when it was read, minus the
-- jobs that have left the tail since. The first that is not there is searched for, which tells how many have left. Others are
-- only searched for while there are steps left: a hundred jobs that someone else has deleted held Redis up for seconds. The
-- positions of the others must not shift meanwhile, so the text replaces each job that is taken, and one LREM removes all these
-- texts at the end.

local GONE = ARGV[1]
local drift, steps_left = 0, tonumber(ARGV[2])

-- The job's position, counted from the tail as a negative number, as Redis counts it; nil if the job is not there.
local function place_of(job, before)
  if before >= 0 then
    local guess = -1 - math.max(0, before - drift)
    if redis.call('LINDEX', KEYS[1], guess) == job then return guess end
  end
  if steps_left <= 0 then return nil end
  steps_left = steps_left - (before < 0 and redis.call('LLEN', KEYS[1]) or before + 1)
  local found = redis.call('LPOS', KEYS[1], job, 'RANK', -1, 'MAXLEN', before + 1)
  if not found then return nil end
  local place = found - redis.call('LLEN', KEYS[1])
  if before >= 0 then drift = before + 1 + place end
  return place
end

-- Stops a user who lacks a permission before anything is done: without LSET a job would be in both queues, without LREM the
-- text would stay. LPOS and LSET change nothing here, and for users who may use LREM it fails because of the key's type.
local head = redis.call('LINDEX', KEYS[1], 0)
if head then
  redis.call('LPOS', KEYS[1], head)
  redis.call('LSET', KEYS[1], 0, head)
end
local refused = redis.pcall('LREM', KEYS[2], 1, GONE)
if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end

local replies, taken, failure = {}, 0, nil
local first, last = nil, nil
for i = 3, #ARGV, 2 do
  local job, done = ARGV[i], 0
  local place = not failure and place_of(job, tonumber(ARGV[i + 1]))
  if place then
    if KEYS[3] then
      local name = string.sub(KEYS[3], #KEYS[2] + 1)
      local entered, pushed = redis.pcall('SADD', KEYS[2], name), nil
      failure = type(entered) == 'table' and entered
      -- The job is in the new queue before it leaves the old one.
      if not failure then pushed = redis.pcall('LPUSH', KEYS[3], job) end
      failure = failure or (type(pushed) == 'table' and pushed)
    end
    if not failure then
      redis.call('LSET', KEYS[1], place, GONE)
      taken = taken + 1
      first, last = math.max(first or place, place), math.min(last or place, place)
      done = 1
    end
  end
  replies[#replies + 1] = done
end
if taken > 0 then
  -- From the end that is nearer: LREM looks at each job on its way.
  local is_near_head = redis.call('LLEN', KEYS[1]) + first < -last
  redis.call('LREM', KEYS[1], is_near_head and taken or -taken, GONE)
end
if failure and taken == 0 then return failure end
return replies
