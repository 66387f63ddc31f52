-- Revokes jobs: from now on, a worker that takes one of them from a queue is notified.
--
-- KEYS[1] zset  ids of revoked jobs, scored by their expiry   KEYS[2] zset  schedule   KEYS[3] zset  retry
-- KEYS[4] hash  the owners   KEYS[5] the prefix of the keys of owners' in-flight jobs   KEYS[6] the prefix of their inboxes
-- ARGV[1] now, epoch s   ARGV[2] earliest expiry   ARGV[3] how long to keep the ids after the last waiting job is due, s
-- ARGV[4] latest expiry   ARGV[5] how many ids are kept   ARGV[6..] ids
--
-- Reply: {1 if one of the jobs may be in flight, so that a process may have fetched it but not started it yet, else 0; how many
-- other ids were dropped to make room for these}.

-- How many keys and jobs in flight are looked at, and how many bytes of jobs. With more of them, a job may be in flight: its caller
-- waits a moment. A search through all that 3,000 processes had in flight held Redis up for half a second.
local steps_left, bytes_left = 1000, 1000000
local FIRST = 6

redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1])

-- Every job that waits now will have been fetched by then.
local untill = tonumber(ARGV[2])
for i = 2, 3 do
  local last = redis.pcall('ZREVRANGE', KEYS[i], 0, 0, 'WITHSCORES')
  if last[2] then untill = math.max(untill, tonumber(last[2]) + tonumber(ARGV[3])) end
end
local most = tonumber(ARGV[5])
if redis.call('ZCARD', KEYS[1]) + #ARGV - FIRST + 1 > most then
  -- The ids that are revoked now must be dropped last.
  local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  if last[2] then untill = math.max(untill, tonumber(last[2])) end
end
untill = math.ceil(math.min(untill, tonumber(ARGV[4])))

local wanted = {}
for i = FIRST, #ARGV do
  redis.call('ZADD', KEYS[1], 'GT', untill, ARGV[i])
  wanted[ARGV[i]] = true
end

-- The ids with the earliest expiry are dropped first: those that a worker has already seen, then the oldest.
local over, gone = redis.call('ZCARD', KEYS[1]) - most, 0
if over > 0 then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, over + #ARGV - FIRST)) do
    if gone < over and not wanted[id] then gone = gone + redis.call('ZREM', KEYS[1], id) end
  end
end
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')
redis.call('EXPIRE', KEYS[1], string.format('%.0f', math.ceil(last[2] - ARGV[1])))

local function is_wanted(job)
  local at = 1
  while true do
    local from, to = string.find(job, '"jid"', at, true)
    if not from then return false end
    local id = string.match(job, '^%s*:%s*"([^"]*)"', to + 1)
    if id and wanted[id] then return true end
    at = to + 1
  end
end

-- The owner's entry names the queues of its inboxes. If it cannot be parsed, there are none.
local function inboxes(owner, about)
  local is_json, noted = pcall(cjson.decode, about)
  local queues = is_json and type(noted) == 'table' and noted.queues
  local names = {}
  for _, queue in ipairs(type(queues) == 'table' and queues or {}) do names[#names + 1] = KEYS[6] .. owner .. ':' .. queue end
  return names
end

-- Whether one of the jobs may be under a key: *count* and *read* are the commands for its size and for one of its jobs.
local function may_be_in(key, count, names, read)
  local size = redis.call(count, key)
  steps_left = steps_left - 1 - size
  if size == 0 or steps_left < 0 then return size > 0 end
  for _, name in ipairs(names(key, size)) do
    local job = redis.call(read, key, name)
    bytes_left = bytes_left - #job
    if bytes_left < 0 or is_wanted(job) then return true end
  end
  return false
end

local function fields(key) return redis.call('HKEYS', key) end

local function places(_, size)
  local numbers = {}
  for place = 0, size - 1 do numbers[place + 1] = place end
  return numbers
end

if redis.call('HLEN', KEYS[4]) > steps_left then return {1, gone} end
local owners = redis.call('HGETALL', KEYS[4])
for i = 1, #owners, 2 do
  local owner = owners[i]
  if may_be_in(KEYS[5] .. owner, 'HLEN', fields, 'HGET') then return {1, gone} end
  for _, inbox in ipairs(inboxes(owner, owners[i + 1])) do
    if may_be_in(inbox, 'LLEN', places, 'LINDEX') then return {1, gone} end
  end
  if steps_left < 0 then return {1, gone} end
end
return {0, gone}
