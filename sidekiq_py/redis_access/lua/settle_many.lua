-- Ends many jobs of which each writes nothing but its share of one verb: runs it once, for those still in flight.
--
-- KEYS[1..n-1] hash  in-flight jobs, or list  an inbox   KEYS[n] the verb's
-- ARGV[1] the verb   ARGV[2] how many words stand before those of the jobs   ARGV[3] how many words each job has
-- ARGV[4..] the former; then for each of KEYS[1..n-1] "1" if that is an inbox, how many jobs, and of each job its field or its
-- bytes, and its words
--
-- Reply: how many were still in flight; the others belong to somebody else by now. Error: nothing was written.

local VERBS = {}
--@verbs

local verb, key = VERBS[ARGV[1]], KEYS[#KEYS]
local first, each = tonumber(ARGV[2]), tonumber(ARGV[3])
local words, count = {unpack(ARGV, 4, 3 + first)}, 0
-- Of those still in flight: key to fields, and pairs of key and bytes.
local fields, listed = {}, {}
local at = 4 + first
for place = 1, #KEYS - 1 do
  local name, is_listed, there = KEYS[place], ARGV[at] == '1', {}
  local last = at + 1 + tonumber(ARGV[at + 1]) * (1 + each)
  for job = at + 2, last, 1 + each do
    local is_there = redis.call(is_listed and 'LPOS' or 'HEXISTS', name, ARGV[job])
    -- What is nowhere in a list is false.
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

-- Not by unpack, which ends at about 8,000 words. A verb may change what it is given.
local copy = {}
for word = 1, #words do copy[word] = words[word] end
local why = verb.look and verb.look(key, copy)
if why then return redis.error_reply(why) end
-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[#KEYS], '')
-- A user who may not use LREM is told before the verb counts a job that would stay in flight.
if listed[1] then redis.call('LREM', listed[1][1], 1, '\0' .. listed[1][2]) end
local is_done, reply = pcall(verb.run, key, words)
if not is_done then return type(reply) == 'table' and reply or redis.error_reply(tostring(reply)) end
if type(reply) == 'table' and reply.err then return reply end
for place, names in pairs(fields) do
  for at = 1, #names, 1000 do redis.call('HDEL', place, unpack(names, at, math.min(at + 999, #names))) end
end
for _, job in ipairs(listed) do redis.call('LREM', job[1], -1, job[2]) end
return count
