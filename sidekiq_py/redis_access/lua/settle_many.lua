-- Ends many jobs of which each writes nothing but its share of one verb: runs it once, for those still in flight.
--
-- KEYS[1..n-1] hash  in-flight jobs, or list  an inbox   KEYS[n] the verb's
-- ARGV[1] the verb   ARGV[2] how many words stand before those of the jobs   ARGV[3] how many words each job has
-- ARGV[4..] the former; then for each job the number of its key, "1" if that is an inbox, its field or its bytes, its words
--
-- Reply: how many were still in flight; the others belong to somebody else by now. Error: nothing was written.

local VERBS = {}
--@verbs

local verb, key = VERBS[ARGV[1]], KEYS[#KEYS]
local first, each = tonumber(ARGV[2]), tonumber(ARGV[3])
local words, count = {unpack(ARGV, 4, 3 + first)}, 0
-- Of those still in flight: key to fields, and pairs of key and bytes.
local fields, listed = {}, {}
for at = 4 + first, #ARGV, 3 + each do
  local place, is_listed, name = KEYS[tonumber(ARGV[at])], ARGV[at + 1] == '1', ARGV[at + 2]
  local is_there
  if is_listed then
    is_there = redis.call('LPOS', place, name)
  else
    is_there = redis.call('HEXISTS', place, name) == 1
  end
  if is_there then
    count = count + 1
    if is_listed then
      listed[#listed + 1] = {place, name}
    else
      local names = fields[place] or {}
      names[#names + 1] = name
      fields[place] = names
    end
    for word = at + 3, at + 2 + each do words[#words + 1] = ARGV[word] end
  end
end
if count == 0 then return 0 end

-- Not by unpack, which ends at about 8,000 words. A verb may change what it is given.
local function copied()
  local copy = {}
  for at = 1, #words do copy[at] = words[at] end
  return copy
end

local why = verb.look and verb.look(key, copied())
if why then return redis.error_reply(why) end
-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[#KEYS], '')
local is_done, reply = pcall(verb.run, key, copied())
if not is_done then return type(reply) == 'table' and reply or redis.error_reply(tostring(reply)) end
if type(reply) == 'table' and reply.err then return reply end
for place, names in pairs(fields) do
  for at = 1, #names, 1000 do redis.call('HDEL', place, unpack(names, at, math.min(at + 999, #names))) end
end
for _, job in ipairs(listed) do redis.call('LREM', job[1], -1, job[2]) end
return count
