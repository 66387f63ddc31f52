-- Settles one job: if it is still in flight, runs the commands of its end and then removes it.
--
-- Redis does not undo a script's writes after an error, and the caller sends a refused end again. So everything that must
-- succeed is checked first, and nothing is written if a key has another type than its command needs.
--
-- KEYS[1] hash  in-flight jobs, or list  an inbox or a queue, or zset  `retry`, `schedule` or `dead`
-- KEYS[2..] every key that the commands name
-- ARGV[1] the job's field, or its bytes if KEYS[1] is not a hash; empty for a job that is not in flight anywhere, whose
-- commands run unconditionally
-- ARGV[2] "1": KEYS[1] is a list; "2": it is a sorted set; "3": the commands push jobs, which a full Redis refuses; "4": it is a
-- list that may be long
-- ARGV[3] how many commands must succeed; they run first, so an error leaves the job in flight
-- ARGV[4..] the commands, each as <number of words> <word> ..., whose second word is the number of its key; those after
-- the first ARGV[3] are counters and may fail
--
-- Four commands are conditions. If one does not hold, the next <n> commands are skipped:
--   ONCE <hash> <mark> <n>                   holds if the mark is not set yet; it sets the mark
--   JOIN <hash> <mark> <n> <parts> <placeholder>    like ONCE, but the hash must also have the fields 0 to <parts> - 1, and as
--                                            many more as its field `more` says. In the words of the n commands, each
--                                            placeholder is replaced by the texts of these fields, joined by commas
--   UNLESS <string> <start> <n>              holds if the text at the key does not start with <start>
--   HELD <string> <text> <n>                 holds if the text at the key is <text>
--
-- A mark is removed again if one of its commands fails. Among the counters, a condition whose key is not a hash does not hold.
--
-- Two commands do the work of several Redis commands:
--   COUNT <string> <n> <seconds>             INCRBY <string> <n>; a new key expires after <seconds>. Only among the counters
--   TAKE <list> <job> <field> <owner> <hash> <owners> <lease> <notices> <absent>...
--                                            LPUSH <list> <job>. But if the list is empty, none of the keys <absent> exists
--                                            (other queues, and the keys that only `fetch.lua` handles), and the owner is
--                                            entered and has its lease, then the job goes straight in flight, in <hash>
--                                            under <field>. Keys are given by their numbers
--
-- Commands of extensions (verbs) are Lua that the caller inserts below: {look = ..., run = ...}. Both are called
-- with the key and a table of the words after it. `look` must not write; if it returns a text, the whole script is refused.
--
-- Reply: 1, or {number of the notices} if a job was taken. 0 if the job was not in flight: another process owns it by
-- now, and nothing was written. Error: WRONGTYPE or ERR with the name of the key; nothing was written.

--@part verbs

-- -1 if the job is nearer to the tail of a long list, 1 if it is nearer to the head, nil if it is not there. People delete the
-- newest or the oldest jobs of a queue. Among 100,000, a search from the wrong end takes Redis 9 ms.
local function nearer_end()
  local length, most = redis.call('LLEN', KEYS[1]), 100
  while true do
    if redis.call('LPOS', KEYS[1], ARGV[1], 'RANK', -1, 'MAXLEN', most) then return -1 end
    if most >= length then return nil end
    if redis.call('LPOS', KEYS[1], ARGV[1], 'MAXLEN', most) then return 1 end
    most = most * 4
  end
end

local is_listed, is_scored, from_end = ARGV[2] == '1', ARGV[2] == '2', -1
if is_listed then
  if not redis.call('LPOS', KEYS[1], ARGV[1]) then return 0 end
elseif ARGV[2] == '4' then
  is_listed, from_end = true, nearer_end()
  if not from_end then return 0 end
elseif is_scored then
  if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 0 end
elseif ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then
  return 0
end

local function remove()
  if is_listed then
    redis.call('LREM', KEYS[1], from_end, ARGV[1])
  elseif is_scored or ARGV[1] ~= '' then
    redis.call(is_scored and 'ZREM' or 'HDEL', KEYS[1], ARGV[1])
  end
end

-- Below, "+ 0" turns a word into a number. `tonumber` takes longer: with it, a step of a chain took Redis 2 µs more.

local function words_of(at)
  return {unpack(ARGV, at + 3, at + ARGV[at])}
end

-- Lua can pass about 8,000 words to one command.
local MOST_WORDS = 7000
local FIRST = 4
local vital = tonumber(ARGV[3])

local function is_condition(verb)
  return verb == 'ONCE' or verb == 'JOIN' or verb == 'UNLESS' or verb == 'HELD'
end

-- How many parts there must be. If another program wrote `more` and it is not a number, it counts as 0.
local function wanted_parts(key, parts)
  return parts + (tonumber(redis.call('HGET', key, 'more') or 0) or 0)
end

-- True if all parts are there, or in `coming`.
local function is_whole(key, parts, coming)
  parts = wanted_parts(key, parts)
  local there = redis.call('HLEN', key)
  for _ in pairs(coming) do there = there + 1 end
  -- Every part that ends calls this. So the cheap check comes first, and the loop starts at the end, where usually the last
  -- part is still missing.
  if there < parts then return false end
  for part = parts - 1, 0, -1 do
    if not coming[tostring(part)] and redis.call('HEXISTS', key, part) == 0 then return false end
  end
  return true
end

-- True if the user may not run the command at this position; Redis can tell since 7.0. Commands that only read are not checked
-- in advance.
local function is_forbidden(at, verb, key)
  if not redis.acl_check_cmd or verb == 'UNLESS' or verb == 'HELD' then return false end
  if verb == 'TAKE' then return not redis.acl_check_cmd('LPUSH', key, '') end
  if verb == 'ONCE' or verb == 'JOIN' then return not redis.acl_check_cmd('HSETNX', key, '', '1') end
  -- An error means that this Redis does not know the command, or not with these words; it is refused when it runs.
  local is_known, may = pcall(redis.acl_check_cmd, verb, key, unpack(ARGV, at + 3, at + ARGV[at]))
  return is_known and not may
end

-- The error that one of the vital commands would raise, or nil. Only reads.
local function obstacle()
  local needs = {
    LPUSH = 'list', TAKE = 'list', RPUSH = 'list', LREM = 'list', LTRIM = 'list', SADD = 'set', SREM = 'set',
    ZADD = 'zset', ZREM = 'zset', ZINCRBY = 'zset', ZREMRANGEBYRANK = 'zset', ZREMRANGEBYSCORE = 'zset',
    HSET = 'hash', HSETNX = 'hash', HDEL = 'hash', HINCRBY = 'hash', ONCE = 'hash', JOIN = 'hash',
    INCR = 'string', INCRBY = 'string', DECR = 'string', DECRBY = 'string', APPEND = 'string',
  }
  -- By the time a command runs: the type that each key will have, the fields that will be set, and the keys that were removed.
  local types, coming, removed = {}, {}, {}
  local at, skipped = FIRST, 0

  local function refusal(verb, key)
    local need, is = needs[verb], types[key]
    if VERBS[verb] then return VERBS[verb].look and VERBS[verb].look(key, words_of(at)) end
    if is_forbidden(at, verb, key) then return 'NOPERM this user may not use ' .. verb .. ' on ' .. key end
    if verb == 'DEL' then
      types[key], coming[key], removed[key] = 'none', nil, true
    elseif verb == 'SET' then
      types[key] = 'string'
    elseif need then
      -- For a user who may not use TYPE, the check is skipped.
      is = is or redis.pcall('TYPE', key).ok or 'none'
      if is ~= 'none' and is ~= need then
        return 'WRONGTYPE ' .. key .. ' is a ' .. is .. ', and ' .. (verb == 'TAKE' and 'LPUSH' or verb) .. ' needs a ' .. need
      end
      local number = nil
      if not types[key] and need == 'string' and verb ~= 'APPEND' then
        number = redis.call('GET', key)
      elseif not types[key] and verb == 'HINCRBY' then
        number = redis.call('HGET', key, ARGV[at + 3])
      end
      if number and not string.find(number, '^-?%d+$') then return 'ERR ' .. key .. ' holds no integer for ' .. verb end
      types[key] = need
    end
    if verb == 'HSET' then
      local fields = coming[key] or {}
      for word = at + 3, at + ARGV[at], 2 do fields[ARGV[word]] = true end
      coming[key] = fields
    end
    return nil
  end

  -- True if the commands that depend on a condition will run.
  local function will_hold(verb, key)
    local mark = ARGV[at + 3]
    if verb == 'UNLESS' then
      return types[key] ~= nil or redis.pcall('GETRANGE', key, 0, #mark - 1) ~= mark
    end
    if verb == 'HELD' then return not types[key] and redis.pcall('GET', key) == mark end
    if not removed[key] and redis.call('HEXISTS', key, mark) == 1 then return false end
    return verb == 'ONCE' or is_whole(key, tonumber(ARGV[at + 5]), coming[key] or {})
  end

  for _ = 1, vital do
    local words, verb, key = ARGV[at] + 0, ARGV[at + 1], KEYS[ARGV[at + 2] + 0]
    if skipped > 0 then
      skipped = skipped - 1
    elseif words > MOST_WORDS then
      return 'ERR ' .. verb .. ' of ' .. words .. ' words is too long for a script'
    else
      local why = refusal(verb, key)
      if why then return why end
      if is_condition(verb) and not will_hold(verb, key) then skipped = tonumber(ARGV[at + 4]) end
    end
    at = at + words + 1
  end
  return nil
end

-- A single Redis command fails or succeeds as a whole, so it needs no check in advance.
if vital > 1 or (vital == 1 and VERBS[ARGV[FIRST + 1]]) then
  local why = obstacle()
  if why then return redis.error_reply(why) end
end

-- Changes nothing, and fails if memory is full. After any other write, Redis would not refuse the push for that.
if ARGV[2] == '3' then
  local reply = redis.pcall('ZADD', KEYS[1], 'XX', '0', '')
  if type(reply) == 'table' and reply.err and string.find(reply.err, 'OOM ', 1, true) then
    return redis.error_reply("OOM command not allowed when used memory > 'maxmemory'")
  end
end

-- Removes nothing: no job begins with a NUL. But once a script has written, Redis does not refuse its writes for lack of memory,
-- and ending the job frees memory; a push ends none. A user who may not remove the job is refused here, before any write that would
-- be repeated. LREM looks at each job of a long list for that. LTRIM does not, and Redis can tell since 7.0 whether the user may use
-- LREM.
local has_written = ARGV[2] == '4' and redis.acl_check_cmd and redis.acl_check_cmd('LREM', KEYS[1], 1, '')
  and not redis.pcall('LTRIM', KEYS[1], 0, -1).err
if not has_written and is_listed then
  redis.call('LREM', KEYS[1], 1, '\0' .. ARGV[1])
elseif not has_written and ARGV[2] ~= '3' then
  redis.call(is_scored and 'ZREM' or 'HDEL', KEYS[1], is_scored and '\0' .. ARGV[1] or '')
end

local function joined(key, parts)
  parts = wanted_parts(key, parts)
  -- Checked first, because the loop reads the fields one by one.
  if redis.call('HLEN', key) < parts then return nil end
  local texts = {}
  for part = 0, parts - 1 do
    local text = redis.call('HGET', key, part)
    if not text then return nil end
    texts[#texts + 1] = text
  end
  return table.concat(texts, ',')
end

-- Plain text on both sides: as a pattern, a job's text could have special characters.
local function spliced(word, placeholder, text)
  if placeholder == '' then return word end
  local pieces, start = {}, 1
  repeat
    local from, to = string.find(word, placeholder, start, true)
    pieces[#pieces + 1] = string.sub(word, start, (from or 0) - 1)
    start = (to or 0) + 1
  until not from
  return table.concat(pieces, text)
end

-- The result of a condition: how many of the next commands to skip and how many depend on it, and for these the hash and the
-- mark, and the placeholder and its text.
local function judged(at, is_vital)
  local verb, key, mark, n = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4] + 0
  if verb == 'UNLESS' then
    -- An error, as for a key that is not a string, does not equal any text.
    if redis.pcall('GETRANGE', key, 0, #mark - 1) == mark then return n, 0 end
    return 0, 0
  end
  if verb == 'HELD' then return redis.pcall('GET', key) == mark and 0 or n, 0 end
  if not is_vital and redis.pcall('HEXISTS', key, mark) ~= 0 then return n, 0 end
  local text = nil
  if verb == 'JOIN' then
    text = joined(key, tonumber(ARGV[at + 5]))
    if not text then return n, 0 end
  end
  if redis.call('HSETNX', key, mark, '1') == 0 then return n, 0 end
  return 0, n, key, mark, ARGV[at + 6], text
end

local function counted(key, n, seconds)
  local reply = redis.pcall('INCRBY', key, n)
  if reply == tonumber(n) then redis.pcall('EXPIRE', key, seconds) end
  return reply
end

-- Runs TAKE. Returns the command's reply and, if it took the job, what to report and how to undo it.
local function taken_or_pushed(at, words)
  local list, job, field, owner = ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5]
  local named = {}
  for word = at + 6, at + words do named[#named + 1] = KEYS[ARGV[word] + 0] end
  local hash, owners, lease, notices = named[1], named[2], named[3], redis.pcall('GET', named[4])
  if
    type(notices) == 'table' or redis.call('EXISTS', list, unpack(named, 5)) > 0
    or redis.call('EXISTS', lease) == 0 or redis.pcall('HEXISTS', owners, owner) ~= 1
  then
    return redis.pcall('LPUSH', list, job), nil
  end
  return redis.pcall('HSET', hash, field, job), {notices = notices or '', hash = hash, list = list, job = job, field = field}
end

-- Turns an error in a verb, as for a key of the wrong type, into an error reply like that of a command.
local function done_by_verb(verb, key, words)
  local is_done, reply = pcall(verb.run, key, words)
  if is_done then return reply or 1 end
  return type(reply) == 'table' and reply or {err = tostring(reply)}
end

local at = FIRST
local number = 0
local removed, taken = false, nil
local skipped, hanging, key, mark, placeholder, text = 0, 0, nil, nil, nil, nil
while ARGV[at] do
  local words = ARGV[at] + 0
  ARGV[at + 2] = KEYS[ARGV[at + 2] + 0]
  if number >= vital and not removed then
    remove()
    removed = true
  end
  if skipped > 0 then
    skipped = skipped - 1
  elseif is_condition(ARGV[at + 1]) then
    skipped, hanging, key, mark, placeholder, text = judged(at, number < vital)
  elseif number < vital or words <= MOST_WORDS then
    if text and hanging > 0 then
      for word = at + 3, at + words do ARGV[word] = spliced(ARGV[word], placeholder, text) end
    end
    local reply
    if ARGV[at + 1] == 'TAKE' then
      reply, taken = taken_or_pushed(at, words)
    elseif ARGV[at + 1] == 'COUNT' then
      reply = counted(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
    elseif VERBS[ARGV[at + 1]] then
      reply = done_by_verb(VERBS[ARGV[at + 1]], ARGV[at + 2], words_of(at))
    else
      reply = redis.pcall(unpack(ARGV, at + 1, at + words))
    end
    if number < vital and type(reply) == 'table' and reply.err then
      -- Otherwise the next try would treat the commands that depend on the mark as done.
      if hanging > 0 then redis.pcall('HDEL', key, mark) end
      -- The reply is an error, so the caller would not learn that the job was taken.
      if taken and redis.pcall('HDEL', taken.hash, taken.field) == 1 then redis.pcall('LPUSH', taken.list, taken.job) end
      if string.find(reply.err, 'WRONGTYPE', 1, true) then
        return redis.error_reply('WRONGTYPE ' .. ARGV[at + 2] .. ' is not of the type that ' .. ARGV[at + 1] .. ' needs')
      end
      return reply
    end
    hanging = math.max(0, hanging - 1)
  end
  number = number + 1
  at = at + words + 1
end
if not removed then remove() end
return taken and {taken.notices} or 1
