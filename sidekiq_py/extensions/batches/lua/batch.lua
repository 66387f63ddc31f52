-- The state of a batch, and every step that changes it. Shared by the script that settles jobs, the one that pushes them, and
-- Ruby's support file. A step checks everything that may fail before it writes.
--
-- The step `add` is here, and the others are in `other_steps.lua`, which is inserted below as a function: each run of a script creates
-- its functions anew, and for those of both files that takes Redis 14 µs, a third of what it needs to push a single job.
--
-- Keys. All but the first are derived from the first one's name; they expire together:
--   <p>sidekiq_py:batch:<bid>            hash    fields below
--   <p>sidekiq_py:batch:<bid>:succeeded  bitmap  by number: the member has succeeded
--   <p>sidekiq_py:batch:<bid>:tried      bitmap  by number: the member no longer holds back `complete`, though it has not succeeded
--   <p>sidekiq_py:batch:<bid>:members    hash    number -> <state>:<jid> of members that are not waiting and have not succeeded;
--                                                states: failed, dead, invalidated, deleted, lost
--   <p>sidekiq_py:batch:<bid>:errors     hash    number -> JSON: the member's last error; at most MOST_ERRORS of them
--   <p>sidekiq_py:batch:<bid>:callbacks  hash    <event>:<i> -> <queue> LF <the job's bytes up to `enqueued_at`>
--   <p>sidekiq_py:batch:<bid>:children   set     bids
--   <p>sidekiq_py:batch:<bid>:blocks     hash    first number of a reserved block, or of a slice that follows one that was not pushed
--                                                -> how many numbers from there on are members; and for each sender
--                                                <first number>+<offset>:<sender> of its last slices, and
--                                                <first number>=<sender> of each of its blocks: a slice may still be under way
--                                                when the next one, in another block, is written
--   <p>sidekiq_py:batch:<bid>:pushes:<token>  hash  `at` -> seconds since the epoch, or the mark of the last slice: for a minute at
--                                                most, the owner of the token may push with transactions that watch this key
--   only for a tracked batch, which has a row for each member:
--   <p>sidekiq_py:batch:<bid>:jobs       hash    number -> JSON written by the program that pushed it: jid, class, args, queue, at
--   <p>sidekiq_py:batch:<bid>:tracks     hash    number -> <attempts> <enqueued> <started> <ended> <at> <total> LF <message>; times
--                                                are seconds since the epoch, and - is a missing value
--   <p>sidekiq_py:batch:<bid>:states     zset    number -> the index of its state in ROW_STATES, from 0, * 2^33 + number
--   <p>sidekiq_py:batch:<bid>:changes    channel {"state": "<state>", "numbers": [<number>, ...]} or {"event": "<event>"}
--   <p>sidekiq_py:batches                zset    bid -> seconds since the epoch: every batch, by its creation
--   <p>sidekiq_py:batches:running        zset    bid -> the same, for those that have not succeeded
--   <p>sidekiq_py:batches:invalid        zset    bid -> seconds since the epoch: when it was invalidated
--   <p>queues, <p>queue:<name>   written when callbacks are enqueued
--
-- Fields: v description created_at parent expires_in keep_until track callback_queue ms_times (the opener's Sidekiq writes times in
-- milliseconds); next (the first number that is not reserved); total; untried (members that hold back `complete`); pending (members
-- that have not succeeded); kids, kids_untried, kids_pending (children, those not complete, those without success); n:<state>
-- (members in that state); tokens (how many may add), token:<token> -> <since> <number of the member, or -> <who>; changed_at;
-- complete_at, success_at, death_at, invalidated_at, closed_by_hand_at.

local DAY = 86400
local function now_seconds()
  local time = redis.call('TIME')
  return tonumber(time[1]), tonumber(time[2])
end

-- The names of a batch's keys.
local function batch_of(key)
  local prefix, bid = string.match(key, '^(.*)sidekiq_py:batch:([^:]+)$')
  return {
    key = key, prefix = prefix, bid = bid,
    succeeded = key .. ':succeeded', tried = key .. ':tried', members = key .. ':members', errors = key .. ':errors',
    callbacks = key .. ':callbacks', children = key .. ':children', blocks = key .. ':blocks', jobs = key .. ':jobs',
    tracks = key .. ':tracks', states = key .. ':states',
  }
end

local function keys_of(batch)
  return {
    batch.key, batch.succeeded, batch.tried, batch.members, batch.errors, batch.callbacks, batch.children, batch.blocks,
    batch.jobs, batch.tracks, batch.states,
  }
end

-- Returns an error if the key has another type, which another program must have caused. Nothing is written then.
local function wrong_type(key, need)
  local is = redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= need then return 'WRONGTYPE ' .. key .. ' is a ' .. is .. ', and a batch needs a ' .. need end
  return nil
end

local function parent_of(batch, bid)
  return bid and batch_of(batch.prefix .. 'sidekiq_py:batch:' .. bid) or nil
end

-- For how long a batch lives after a change.
local function life_of(fields, now)
  local seconds = tonumber(fields[1] or 30 * DAY) or 30 * DAY
  if fields[3] then
    seconds = math.min(seconds, DAY)
  elseif fields[2] then
    seconds = math.max(seconds, (tonumber(fields[2]) or 0) - now)
  end
  -- Redis refuses an end beyond the year 292,000,000, as for a job that is scheduled in nanoseconds. A thousand years are enough.
  return math.max(1, math.floor(math.min(seconds, 2 ^ 35)))
end

-- All keys expire together. EXPIRE is only sent if it moves the end by more than a twentieth, or for new keys. A batch waits for its
-- children, so it must live as long as they do. The walk up ends at the first parent that already does: in a deep nesting, a walk to the
-- top at each step blocks Redis for seconds. *fields* and *left* are the first batch's fields and TTL, if they are already known.
local function live_on(batch, now, has_new_key, fields, left)
  local seen, child_lives = {}, 0
  while batch do
    seen[batch.key] = true
    fields = fields or redis.call('HMGET', batch.key, 'expires_in', 'keep_until', 'success_at', 'parent')
    left = left or redis.call('TTL', batch.key)
    local seconds = life_of(fields, now)
    local is_moved = left < seconds - seconds / 20
    if fields[3] then
      is_moved = is_moved or left > seconds + seconds / 20
    else
      is_moved = is_moved or left < child_lives - math.min(60, child_lives / 20)
      seconds = math.max(seconds, child_lives)
    end
    if is_moved or has_new_key then
      for _, key in ipairs(keys_of(batch)) do redis.call('EXPIRE', key, is_moved and seconds or left) end
    end
    if fields[3] or (child_lives > 0 and not is_moved) then return end
    batch, has_new_key, child_lives = parent_of(batch, fields[4]), false, is_moved and seconds or left
    fields, left = nil, nil
    -- Another program may have made a batch its own ancestor.
    if batch and (seen[batch.key] or redis.call('TYPE', batch.key).ok ~= 'hash') then return end
  end
end

local function pushes_key(batch, token)
  return batch.key .. ':pushes:' .. token
end

-- True if the members of the block are the numbers up to *offset*. A push that failed leaves a gap, whose numbers belong to no job:
-- the audit must not look for them. *members* is the block's field.
local function follows_on(members, offset)
  return tonumber(members or 0) == tonumber(offset)
end

-- Returns why a member cannot be added, from two of the batch's fields.
local function why_closed(batch, is_member, success_at, token)
  if is_member ~= '1' and success_at then return 'BATCHDONE ' .. batch.bid end
  if token then return nil end
  return (redis.call('EXISTS', batch.key) == 0 and 'BATCHGONE ' or 'BATCHCLOSED ') .. batch.bid
end

-- What steps still have to run after they have written something, and how many words follow each name. If the user may not, the step
-- would remain written in part, and would change nothing more when it is sent again: a member's bit would be set, but not counted.
-- `add` reads all that it reads before it writes.
local NEEDED_BY_ADD = {HSET = 3, HDEL = 2, EXPIRE = 2}
local NEEDED_FOR_ROWS = {ZADD = 3}

-- Returns an error if the user may not run one of these commands; Redis can tell since 7.0.
local function forbidden(batch, commands)
  if not redis.acl_check_cmd then return nil end
  -- Texts, because Redis formats a number with `snprintf`, which takes as long as the rest of a simple command.
  local words = {batch.key, '0', '0'}
  for name, count in pairs(commands) do
    if not redis.acl_check_cmd(name, unpack(words, 1, count)) then
      return 'NOPERM this user may not use ' .. name .. ' on ' .. batch.key
    end
  end
  return nil
end

local made
local function other_steps()
  if not made then made = (function()
--@other_steps
end)() end
  return made
end

-- What `look` has read for the step `add`, until a step writes.
local seen

-- Returns what `add` reads.
local function read_to_add(batch, words)
  local reserved = words[1] .. '=' .. words[9]
  local what = batch.key .. ' ' .. words[6] .. ' ' .. reserved
  if not seen or seen.what ~= what then
    seen = {
      what = what,
      fields = redis.call(
        'HMGET', batch.key, 'success_at', 'token:' .. words[6], 'track', 'next', 'total', 'pending', 'untried', 'expires_in',
        'keep_until', 'parent'
      ),
      block = redis.call('HMGET', batch.blocks, words[1], reserved),
      left = redis.call('TTL', batch.key),
      now = redis.call('TIME')[1],
    }
  end
  return seen.fields, seen.block, seen.left, seen.now
end

local function look_to_add(batch, words)
  local fields, block = read_to_add(batch, words)
  local why = why_closed(batch, words[5], fields[1], fields[2]) or forbidden(batch, NEEDED_BY_ADD)
  if why then return why end
  if words[10] and fields[3] == '1' then
    why = forbidden(batch, NEEDED_FOR_ROWS) or wrong_type(batch.jobs, 'hash') or wrong_type(batch.tracks, 'hash')
      or wrong_type(batch.states, 'zset')
    if why then return why end
  end
  -- Redis has lost the reservation of these numbers and has given them to others since. Two members with one number would be counted
  -- as one, and the batch would wait forever.
  local first = words[1] + words[2] - words[3]
  if not block[2] and (tonumber(fields[4] or 0) or 0) > first then return 'BATCHROLLEDBACK ' .. batch.bid end
  return nil
end

local COUNTERS = {'total', 'pending', 'untried'}

local function add_pair(words, field, value)
  local at = #words
  words[at + 1], words[at + 2] = field, value
end

-- Words: <first number of the block> <how many of its numbers are handed out, including these> <how many jobs> <score of the last
-- scheduled job among them, or 0> <"1": a member adds> <token> <mark of the sender's last slice, or empty> <the number behind the
-- block> <sender>; for a tracked batch also <first number> <JSON of each job>. The caller makes sure that a slice is added once.
local function add(batch, words)
  local fields, block, left, now = read_to_add(batch, words)
  seen = nil
  local count, score = words[3] + 0, words[4] + 0
  local written, added = {'changed_at', now}, {}
  for place, field in ipairs(COUNTERS) do
    local text = fields[4 + place] or '0'
    -- One HSET takes Redis half as long as three HINCRBY. Those, too, leave a text of another program as it is.
    if #text < 16 and string.find(text, '^%-?%d+$') then add_pair(written, field, text + count) end
  end
  -- Redis has lost the reservation, in a failover or a crash. Nobody has these numbers, so the sender keeps them.
  if not block[2] then
    add_pair(written, 'next', string.format('%.0f', math.max(tonumber(fields[4] or 0) or 0, words[8] + 0)))
    add_pair(added, words[1] .. '=' .. words[9], 1)
  end
  if score > 0 and score + DAY > (tonumber(fields[9] or 0) or 0) then
    fields[9] = string.format('%.0f', math.floor(score + DAY))
    add_pair(written, 'keep_until', fields[9])
  end
  if follows_on(block[1], words[2] - count) then
    add_pair(added, words[1], words[2])
  else
    add_pair(added, string.format('%.0f', words[1] + words[2] - count), count)
  end
  -- A transaction with this slice, whose reply was lost, may still arrive: it must have no effect then.
  redis.call('HDEL', pushes_key(batch, words[6]), 'at')
  redis.call('HSET', batch.key, unpack(written))
  redis.call('HSET', batch.blocks, unpack(added))
  if words[7] ~= '' then redis.call('HDEL', batch.blocks, words[7]) end
  local has_new_key = not block[2]
  if words[10] and fields[3] == '1' then
    has_new_key = has_new_key or redis.call('TTL', batch.states) < 0
    other_steps().add_rows(batch, tonumber(words[10]), words, 11)
  end
  live_on(batch, now, has_new_key, {fields[8], fields[9], fields[1], fields[10]}, left)
end

-- Returns what prevents a step, as `<CODE> <what>`; only reads.
local function look(step, batch, words)
  if step == 'add' then return look_to_add(batch, words) end
  return other_steps().look(step, batch, words)
end

local function run(step, batch, words)
  if step == 'add' then
    add(batch, words)
    return 1
  end
  seen = nil
  return other_steps().steps[step](batch, words) or 1
end
