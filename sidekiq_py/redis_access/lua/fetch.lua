-- Moves a batch of jobs from queues into an owner's in-flight hash.
--
-- KEYS[1] hash    the owner's in-flight jobs: field -> original bytes
-- KEYS[2] hash    the owners
-- KEYS[3] string  the owner's lease
-- KEYS[4] hash    suspects: SHA-1 of the bytes -> "<deaths>:<first, epoch s>"
-- KEYS[5] set     names of paused queues
-- KEYS[6] hash    the departed
-- KEYS[7] zset    ids of revoked jobs   KEYS[8] string  the number of the notices, which each change counts up
-- KEYS[9..]       lists: the queues, in order of precedence
-- ARGV[1] owner   ARGV[2] the owner's entry; "" if it is already written   ARGV[3] lease, ms
-- ARGV[4] batch: the fields are "<batch>.<n>:<queue>", or "<batch>.<n>!<queue>" for a suspect that now starts
-- ARGV[5] how many jobs at most   ARGV[6] how many bytes at most   ARGV[7] seed of the draws
-- ARGV[8] "1": a suspect that already has a death may be taken
-- ARGV[9..] the weight of each queue; all "0" means strict order
--
-- Reply: {numbers of the paused queues, notices, field, bytes, field, bytes, ...}, or the error FENCED. The first list also has
-- each queue whose key is not a list, as -1 minus its number, because such a queue must not keep the others from being served.
-- The notices are their number ("" if there are none), followed by the ids in these jobs' text that are revoked.
--
-- A job is written to the hash before it leaves its queue, so an error in between leaves it in the queue.

-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory, and moving jobs is the way
-- out of a full Redis. It also stops a user who may not use LTRIM before a job is in two places. Other errors show up below.
local trimmed = redis.pcall('LTRIM', KEYS[9], 0, -1)
if trimmed.err and string.sub(trimmed.err, 1, 9) ~= 'WRONGTYPE' then return trimmed end

local in_flight, owners, lease, suspects = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, batch = ARGV[1], ARGV[4]
local wanted, bytes_left = tonumber(ARGV[5]), tonumber(ARGV[6])
local CHUNK, GROWTH, ROTATIONS = 128, 4, 10
local FIRST = 9
-- Where a queue's name starts in its key: "queue:" is as long as "paused", also after a namespace.
local NAME = #KEYS[5] + 1
local weight = {}
for i = FIRST, #KEYS do weight[i] = tonumber(ARGV[i]) end

-- If the reply to an owner's first fetch was lost, that fetch may have entered the owner, and it may be recovered by now.
if redis.call('HEXISTS', owners, owner) == 0 and (ARGV[2] == '' or redis.call('HEXISTS', KEYS[6], owner) == 1) then
  return redis.error_reply('FENCED this owner was recovered; go on under a new epoch')
end
if ARGV[2] ~= '' then redis.call('HSET', owners, owner, ARGV[2]) end
if redis.call('EXISTS', lease) == 0 then
  redis.call('SET', lease, '1', 'PX', ARGV[3])
end

--@part read

-- Usually nothing is paused, suspect or revoked, so one EXISTS checks all three.
local is_special = redis.call('EXISTS', KEYS[5], suspects, KEYS[7]) > 0

local paused = {}
local is_paused = {}
if is_special and redis.call('EXISTS', KEYS[5]) == 1 then
  for i = FIRST, #KEYS do
    if read('SISMEMBER', KEYS[5], string.sub(KEYS[i], NAME)) == 1 then
      paused[#paused + 1] = i - FIRST
      is_paused[i] = true
    end
  end
end

-- The queue to draw each job from, in the order in which the jobs are to run.
local left, taken, tail, tail_from = {}, {}, {}, {}
local count, bytes = 0, 0
local is_strict = true
for i = FIRST, #KEYS do
  left[i] = is_paused[i] and 0 or read('LLEN', KEYS[i])
  if not left[i] then
    paused[#paused + 1] = FIRST - i - 1
    left[i] = 0
  end
  taken[i] = 0
  if weight[i] > 0 then is_strict = false end
end
-- With weights: the queues that had jobs when their weights were last added up, and the sum up to each. They are added up again when
-- a draw hits an empty one: adding them up for each of 1,000 jobs from 500 queues blocked Redis for 120 ms.
local open, sums = {}, {}
for i = FIRST, #KEYS do open[#open + 1] = i end

local function add_up()
  local still_open, total = {}, 0
  sums = {}
  for _, i in ipairs(open) do
    if left[i] > 0 then
      total = total + math.max(weight[i], 1)
      still_open[#still_open + 1] = i
      sums[#sums + 1] = total
    end
  end
  open = still_open
end

if not is_strict then
  math.randomseed(tonumber(ARGV[7]))
  add_up()
end

local function draw()
  if is_strict then
    for i = FIRST, #KEYS do
      if left[i] > 0 then return i end
    end
    return nil
  end
  while #open > 0 do
    local at, low, high = math.random() * sums[#sums], 1, #open
    while low < high do
      local middle = math.floor((low + high) / 2)
      if at < sums[middle] then high = middle else low = middle + 1 end
    end
    if left[open[low]] > 0 then return open[low] end
    add_up()
  end
end

-- The job of queue i that comes after those already taken.
local function peek(i)
  local n = taken[i]
  if not tail[i] or n >= tail_from[i] + #tail[i] then
    -- Read about as many as fit, and grow slowly. Redis does not tell sizes, and large payloads must not be copied by the
    -- hundred when only a few are taken: a start with 16 blocked Redis for seconds when jobs had 50 MB. Each queue starts
    -- with one, because of hundreds of queues each brings only a few jobs.
    local fitting = n == 0 and 1 or math.min(n * GROWTH, math.ceil(bytes_left * count / bytes))
    local size = math.max(1, math.min(CHUNK, wanted - count, left[i], fitting))
    tail[i] = redis.call('LRANGE', KEYS[i], -(n + size), -(n + 1))
    tail_from[i] = n
  end
  local chunk = tail[i]
  return chunk[#chunk - (n - tail_from[i])]
end

local has_revoked = is_special and redis.call('EXISTS', KEYS[7]) == 1
-- If the key has the wrong type, fail before anything is moved.
if has_revoked then redis.call('ZSCORE', KEYS[7], '') end
--@part notices

local reply, entries = {paused, notices}, {}

local function write()
  if #entries > 0 then redis.call('HSET', in_flight, unpack(entries)) end
  entries = {}
end

local has_suspects = is_special and redis.call('EXISTS', suspects) == 1
local rotations = 0
while count < wanted and (count == 0 or bytes_left > 0) do
  local i = draw()
  if not i then break end
  local job = peek(i)
  if not job then break end
  local mark = ':'
  if has_suspects then
    local deaths = read('HGET', suspects, redis.sha1hex(job))
    if deaths then
      if count > 0 then break end
      if string.sub(deaths, 1, 2) ~= '0:' and ARGV[8] ~= '1' then
        -- It must wait until this process has no other such job; the jobs behind it need not wait.
        rotations = rotations + 1
        if rotations > ROTATIONS then break end
        redis.call('LPUSH', KEYS[i], job)
        redis.call('RPOP', KEYS[i])
        tail[i] = nil
        left[i] = left[i] - 1
        job = nil
      else
        mark = '!'
      end
    end
  end
  if job then
    if count > 0 and #job > bytes_left then break end
    if has_revoked then note_revoked(job) end
    bytes_left, bytes = bytes_left - #job, bytes + #job
    local field = batch .. '.' .. count .. mark .. string.sub(KEYS[i], NAME)
    entries[#entries + 1] = field
    entries[#entries + 1] = job
    reply[#reply + 1] = field
    reply[#reply + 1] = job
    count = count + 1
    taken[i] = taken[i] + 1
    left[i] = left[i] - 1
    if #entries >= 1000 then write() end
    if mark == '!' then break end
  end
end
write()
for i = FIRST, #KEYS do
  if taken[i] > 0 then redis.call('LTRIM', KEYS[i], 0, -(taken[i] + 1)) end
end
return reply
