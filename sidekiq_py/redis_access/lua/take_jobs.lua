-- Moves chosen jobs from one queue behind all jobs of another queue, or deletes them. Each job is taken only if it is still there.
--
-- KEYS[1] list  from   KEYS[2] set  the names of all queues   KEYS[3] list  to; absent to delete
-- ARGV[1] a text that is not a job and is in no queue   ARGV[2] how many jobs have left the tail by now, as far as is known
-- ARGV[3] how many may have come back   ARGV[4] how many steps over jobs the searches may take
-- ARGV[5] how many bytes of other jobs may be read by mistake
-- ARGV[6..] for each job: its bytes; how many jobs would run before it when it was read, "-1" if that is unknown; how many had
-- left the tail by then
--
-- Reply: how many jobs have left the tail by now; for each job 1 (taken), 0 (gone), or -1 (not where it should be, and not
-- searched for); or the error that refused a push.
--
-- A search for one job among a million takes Redis up to 70 ms. So each job is looked up where it should be by now. The first
-- that is not there is searched for, which tells how many jobs have left. Others are only searched for while there are steps
-- left: a hundred jobs that someone else had deleted held Redis up for seconds. The positions of the others must not shift
-- meanwhile, so the text replaces each job that is taken, and one LREM removes all these texts at the end.

local PLACEHOLDER, MOST_RETURNED = ARGV[1], tonumber(ARGV[3])
local TAKEN, GONE, MISSED = 1, 0, -1
local left, steps_left, bytes_left = tonumber(ARGV[2]), tonumber(ARGV[4]), tonumber(ARGV[5])

-- The job's position, counted from the tail as a negative number, as Redis counts it; or nil, and why.
local function place_of(job, before, left_then)
  local is_known, length = before >= 0, redis.call('LLEN', KEYS[1])
  if is_known and bytes_left > 0 then
    local guess = -1 - math.max(0, before + left_then - left)
    local there = redis.call('LINDEX', KEYS[1], guess)
    if there == job then return guess end
    bytes_left = bytes_left - (there and #there or 0)
  end
  if steps_left <= 0 then return nil, MISSED end
  local most = is_known and math.min(length, before + 1 + MOST_RETURNED) or length
  local found = redis.call('LPOS', KEYS[1], job, 'RANK', -1, 'MAXLEN', most)
  if not found then
    steps_left = steps_left - most
    return nil, GONE
  end
  local place = found - length
  steps_left = steps_left + place
  if is_known then left = before + left_then + 1 + place end
  return place
end

-- Stops a user who lacks a permission before anything is done: without LSET a job would be in both queues, without LREM the
-- text would stay. LPOS and LSET change nothing here, and for users who may use LREM it fails because of the key's type.
local head = redis.call('LINDEX', KEYS[1], 0)
if head then
  redis.call('LPOS', KEYS[1], head)
  redis.call('LSET', KEYS[1], 0, head)
end
local refused = redis.pcall('LREM', KEYS[2], 1, PLACEHOLDER)
if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end

local results, taken, failure = {}, 0, nil
local first, last = nil, nil
for i = 6, #ARGV, 3 do
  local job, place, result = ARGV[i], nil, MISSED
  if not failure then place, result = place_of(job, tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])) end
  if place and KEYS[3] then
    local name = string.sub(KEYS[3], #KEYS[2] + 1)
    local entered, pushed = redis.pcall('SADD', KEYS[2], name), nil
    failure = type(entered) == 'table' and entered
    -- The job is in the new queue before it leaves the old one.
    if not failure then pushed = redis.pcall('LPUSH', KEYS[3], job) end
    failure = failure or (type(pushed) == 'table' and pushed)
  end
  if place and not failure then
    redis.call('LSET', KEYS[1], place, PLACEHOLDER)
    taken = taken + 1
    first, last = math.max(first or place, place), math.min(last or place, place)
    result = TAKEN
  end
  results[#results + 1] = result or MISSED
end
if taken > 0 then
  -- From the end that is nearer: LREM looks at each job on its way.
  local is_near_head = redis.call('LLEN', KEYS[1]) + first < -last
  redis.call('LREM', KEYS[1], is_near_head and taken or -taken, PLACEHOLDER)
end
if failure and taken == 0 then return failure end
return {left, unpack(results)}
