-- Settles many jobs that each write only their share of one verb: runs the verb once, for the jobs that are still in flight.
--
-- KEYS[1..n-1] hash  in-flight jobs, or list  an inbox   KEYS[n] the verb's key
-- ARGV[1] the verb   ARGV[2] how many words come before those of the jobs   ARGV[3] how many words each job has
-- ARGV[4..] the words before those of the jobs; then for each of KEYS[1..n-1] "1" if it is an inbox, how many jobs, and for each
-- job its field or its bytes, and its words
--
-- Reply: how many were still in flight; other processes own the rest by now. Error: nothing was written.

--@part verbs

local verb, key = VERBS[ARGV[1]], KEYS[#KEYS]
local first, each = tonumber(ARGV[2]), tonumber(ARGV[3])
local words, count = {unpack(ARGV, 4, 3 + first)}, 0
-- The jobs that are still in flight: fields by key, and pairs of key and bytes.
local fields, listed = {}, {}
local at = 4 + first
for place = 1, #KEYS - 1 do
  local name, is_listed, there = KEYS[place], ARGV[at] == '1', {}
  local last = at + 1 + tonumber(ARGV[at + 1]) * (1 + each)
  for job = at + 2, last, 1 + each do
    local is_there = redis.call(is_listed and 'LPOS' or 'HEXISTS', name, ARGV[job])
    -- LPOS replies false if the job is not in the list.
    if is_there and (is_listed or is_there == 1) then
      count = count + 1
      if is_listed then listed[#listed + 1] = {name, ARGV[job]} else there[#there + 1] = ARGV[job] end
      for word = job + 1, job + each do words[#words + 1] = ARGV[word] end
    end
  end
  fields[name] = there
  at = last + 1
end
if count == 0 then return 0 end

-- A copy, because a verb may change its words. Not by unpack, which fails above about 8,000 words.
local copy = {}
for word = 1, #words do copy[word] = words[word] end
local why = verb.look and verb.look(key, copy)
if why then return redis.error_reply(why) end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory.
redis.call('HDEL', KEYS[#KEYS], '')
-- Stops a user who may not use LREM before the verb counts a job that would stay in flight.
if listed[1] then redis.call('LREM', listed[1][1], 1, '\0' .. listed[1][2]) end
local is_done, reply = pcall(verb.run, key, words)
if not is_done then return type(reply) == 'table' and reply or redis.error_reply(tostring(reply)) end
if type(reply) == 'table' and reply.err then return reply end
for place, names in pairs(fields) do
  for at = 1, #names, 1000 do redis.call('HDEL', place, unpack(names, at, math.min(at + 999, #names))) end
end
for _, job in ipairs(listed) do redis.call('LREM', job[1], -1, job[2]) end
return count
