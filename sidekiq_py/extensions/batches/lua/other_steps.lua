-- The steps of a batch but `add`. Inserted in `batch.lua`.

local MOST_ERRORS = 1000
local ROW_STATES = {
  'enqueued', 'working', 'finished', 'failed', 'error', 'dead', 'interrupted', 'invalidated', 'deleted', 'lost',
}
local ROW_PLACES = {}
for place, state in ipairs(ROW_STATES) do ROW_PLACES[state] = place - 1 end
local ROW_STRIDE = 2 ^ 33

local function field_number(batch, field)
  return tonumber(redis.call('HGET', batch.key, field) or 0) or 0
end

local function is_tracked(batch)
  if batch.is_tracked == nil then batch.is_tracked = redis.call('HGET', batch.key, 'track') == '1' end
  return batch.is_tracked
end

local function block_of(first, sender)
  return string.format('%.0f', first) .. '=' .. sender
end

-- A counter that another program has overwritten stays as it is, so that jobs can still be settled. The batch then enqueues no
-- callbacks any more, and the doctor reports it.
local function count_up(batch, field, by)
  redis.pcall('HINCRBY', batch.key, field, by)
end

-- Returns an error if a key has the wrong type, which another program must have caused. Nothing is written then.
local function wrong_key(batch)
  local wanted = {
    [batch.key] = 'hash', [batch.succeeded] = 'string', [batch.tried] = 'string', [batch.members] = 'hash',
    [batch.errors] = 'hash', [batch.callbacks] = 'hash', [batch.children] = 'set', [batch.blocks] = 'hash',
  }
  if redis.call('TYPE', batch.key).ok == 'hash' and is_tracked(batch) then
    wanted[batch.jobs], wanted[batch.tracks], wanted[batch.states] = 'hash', 'hash', 'zset'
  end
  for key, need in pairs(wanted) do
    local why = wrong_type(key, need)
    if why then return why end
  end
  return nil
end

-- True if the batch exists and can take members.
local function is_usable(batch)
  return redis.call('TYPE', batch.key).ok == 'hash' and not wrong_key(batch)
    and tonumber(redis.call('HGET', batch.key, 'next')) ~= nil
end

-- Ruby's `Float#to_s`, or whole milliseconds.
local function stamp(seconds, micros, in_ms)
  if in_ms then return string.format('%d%03d', seconds, math.floor(micros / 1000)) end
  local text = string.gsub(string.format('%d.%06d', seconds, micros), '0+$', '')
  if string.sub(text, -1) == '.' then return text .. '0' end
  return text
end

-- Publishes a change to the subscribers. A user without the right to publish still writes everything else.
local function tell(batch, state, numbers)
  local change = '{"state":"' .. state .. '","numbers":[' .. table.concat(numbers, ',') .. ']}'
  redis.pcall('PUBLISH', batch.key .. ':changes', change)
end

local function row_time()
  local seconds, micros = now_seconds()
  return string.format('%d.%03d', seconds, math.floor(micros / 1000))
end

local function row_score(state, number)
  return string.format('%.0f', ROW_PLACES[state] * ROW_STRIDE + number)
end

local function row_state(batch, number)
  local score = redis.call('ZSCORE', batch.states, number)
  return score and ROW_STATES[math.floor(tonumber(score) / ROW_STRIDE) + 1]
end

-- Adds rows for new members, whose JSON is in *words* from *at* on.
local function add_rows(batch, first, words, at)
  local track, numbers = '0 ' .. row_time() .. ' - - - -\n', {}
  while words[at] do
    local jobs, tracks, states = {}, {}, {}
    -- Lua can pass about 8,000 values to one command.
    while words[at] and #jobs < 2000 do
      local number = first + #numbers
      numbers[#numbers + 1] = number
      local place = #jobs + 1
      jobs[place], jobs[place + 1] = number, words[at]
      tracks[place], tracks[place + 1] = number, track
      states[place], states[place + 1] = row_score('enqueued', number), number
      at = at + 1
    end
    redis.call('HSET', batch.jobs, unpack(jobs))
    redis.call('HSET', batch.tracks, unpack(tracks))
    redis.call('ZADD', batch.states, unpack(states))
  end
  tell(batch, 'enqueued', numbers)
end

-- Changes the state of a row. False: there is no row.
local function move_row(batch, number, state)
  local text = is_tracked(batch) and redis.call('HGET', batch.tracks, number)
  if not text then return false end
  local attempts, enqueued, started, ended, said = string.match(text, '^(%d+) (%S+) (%S+) (%S+) (.*)$')
  -- Another program has written to it, which must not keep the job from being settled.
  if not said then attempts, enqueued, started, ended, said = '0', '-', '-', '-', '- -\n' end
  if state == 'working' then
    attempts, started, ended, said = string.format('%d', attempts + 1), row_time(), '-', '- -\n'
  elseif state == 'enqueued' then
    enqueued, started, ended, said = row_time(), '-', '-', '- -\n'
  else
    ended = row_time()
  end
  redis.call('HSET', batch.tracks, number, table.concat({attempts, enqueued, started, ended, said}, ' '))
  redis.call('ZADD', batch.states, row_score(state, number), number)
  return true
end

local function move_and_tell(batch, number, state)
  if not move_row(batch, number, state) then return 0 end
  tell(batch, state, {number})
  return 1
end

local function add_member(batch, holds_complete)
  local number = redis.call('HINCRBY', batch.key, 'next', 1) - 1
  redis.call('HSET', batch.blocks, number, 1)
  count_up(batch, 'total', 1)
  count_up(batch, 'pending', 1)
  if holds_complete then
    count_up(batch, 'untried', 1)
  else
    redis.call('SETBIT', batch.tried, number, 1)
  end
  return number
end

-- If the queue's key is not a list, the job waits among the callbacks until the audit tries again.
local function deliver(batch, queue, job)
  local reply = redis.pcall('LPUSH', batch.prefix .. 'queue:' .. queue, job)
  if type(reply) == 'table' and reply.err then
    redis.call('HSET', batch.callbacks, 'late:' .. redis.sha1hex(job), queue .. '\n' .. job)
    return false
  end
  redis.pcall('SADD', batch.prefix .. 'queues', queue)
  return true
end

local check

-- Enqueues the callbacks of an event, once. The parent is updated after these jobs have become its members.
local function fire(batch, event)
  local seconds, micros = now_seconds()
  if redis.call('HSETNX', batch.key, event .. '_at', string.format('%d.%06d', seconds, micros)) == 0 then return end
  if is_tracked(batch) then redis.pcall('PUBLISH', batch.key .. ':changes', '{"event":"' .. event .. '"}') end
  local fields = redis.call('HMGET', batch.key, 'parent', 'ms_times')
  local parent = parent_of(batch, fields[1])
  -- It is gone, or another program has overwritten its keys.
  if parent and not is_usable(parent) then parent = nil end
  local number = 1
  while true do
    local text = redis.call('HGET', batch.callbacks, event .. ':' .. number)
    if not text then break end
    local queue, head = string.match(text, '^([^\n]*)\n(.*)$')
    -- A text that another program has overwritten is no callback; the others and the parent do not suffer.
    if queue then
      local member = ''
      if parent then
        -- Of a child's callbacks, only `complete` holds back the parent's `complete`.
        local at = add_member(parent, event == 'complete')
        member = ',"sidekiq_py_batch":["' .. parent.bid .. '",' .. at .. ',"' .. event .. '"]'
        if is_tracked(parent) then
          local jid = string.sub(redis.sha1hex(batch.bid .. ':' .. event .. ':' .. number), 1, 24)
          add_rows(parent, at, {'{"jid":"' .. jid .. '","callback":"' .. event .. '"}'}, 1)
          member = member .. ',"sidekiq_py_tracked":true'
        end
      end
      deliver(batch, queue, head .. member .. ',"enqueued_at":' .. stamp(seconds, micros, fields[2] == '1') .. '}')
    end
    number = number + 1
  end
  if event == 'success' then redis.pcall('ZREM', batch.prefix .. 'sidekiq_py:batches:running', batch.bid) end
  if parent then
    redis.call('HSET', parent.key, 'changed_at', seconds)
    if event == 'death' then
      fire(parent, 'death')
    else
      count_up(parent, event == 'complete' and 'kids_untried' or 'kids_pending', -1)
      check(parent)
    end
    live_on(parent, seconds, true)
  end
end

check = function(batch)
  local fields = redis.call(
    'HMGET', batch.key, 'tokens', 'untried', 'kids_untried', 'complete_at', 'pending', 'kids_pending', 'success_at',
    'invalidated_at'
  )
  local function is_zero(place) return (tonumber(fields[place] or 0) or 1) <= 0 end
  if not is_zero(1) then return end
  if not fields[4] and is_zero(2) and is_zero(3) then
    fire(batch, 'complete')
    -- Firing does not change this batch's counters, so the values that were read are still valid.
    fields[4] = true
  end
  -- Jobs that were running when it was invalidated may have stopped early, so their success does not count as one of the batch.
  if fields[4] and not fields[7] and not fields[8] and is_zero(2) and is_zero(3) and is_zero(5) and is_zero(6) then
    fire(batch, 'success')
  end
end

local function give_up_token(batch, token)
  if redis.call('HDEL', batch.key, 'token:' .. token) == 0 then return end
  count_up(batch, 'tokens', -1)
  -- A transaction that is under way then has no effect.
  redis.call('HDEL', pushes_key(batch, token), 'at')
end

local function state_of(batch, number)
  local text = redis.call('HGET', batch.members, number)
  return text and string.match(text, '^[^:]*')
end

local function set_state(batch, number, state, jid)
  local old = state_of(batch, number)
  if state then redis.call('HSET', batch.members, number, state .. ':' .. jid) end
  if old == state then return end
  if old then count_up(batch, 'n:' .. old, -1) end
  if state then
    count_up(batch, 'n:' .. state, 1)
  else
    redis.call('HDEL', batch.members, number)
    redis.call('HDEL', batch.errors, number)
  end
end

local function has_succeeded(batch, number)
  return redis.call('GETBIT', batch.succeeded, number) == 1
end

local function succeed(batch, number)
  local is_tried = redis.call('GETBIT', batch.tried, number) == 1
  if redis.call('SETBIT', batch.succeeded, number, 1) == 1 then return end
  move_and_tell(batch, number, 'finished')
  count_up(batch, 'pending', -1)
  if not is_tried then
    count_up(batch, 'untried', -1)
  else
    set_state(batch, number, nil)
  end
end

-- A member ends without success. This is not counted twice, and changes nothing for a member that has succeeded.
local function fall_short(batch, number, state, jid, about, row)
  if has_succeeded(batch, number) then return end
  -- Deleted from `dead`, or not found by the audit after its death: it still counts as dead.
  local is_gone = state == 'deleted' or state == 'lost'
  if is_gone and state_of(batch, number) == 'dead' then
    -- If it was returned to its queue after its death, its row says that it waits or runs.
    local shown = row_state(batch, number)
    if shown == 'enqueued' or shown == 'working' or shown == 'interrupted' then move_and_tell(batch, number, 'dead') end
    return
  end
  if redis.call('SETBIT', batch.tried, number, 1) == 0 then count_up(batch, 'untried', -1) end
  set_state(batch, number, state, jid)
  move_and_tell(batch, number, row or (state == 'failed' and 'error') or state)
  if about ~= '' then
    local has_room = is_tracked(batch) or redis.call('HLEN', batch.errors) < MOST_ERRORS
      or redis.call('HEXISTS', batch.errors, number) == 1
    if has_room then redis.call('HSET', batch.errors, number, about) end
  end
  if state == 'dead' or state == 'lost' then fire(batch, 'death') end
end

local steps = {}

-- Words: <state> <number> <jid> <JSON about the failure, or empty> <"failed" for the row of a job that reported bad input;
-- otherwise absent>. State: succeeded, failed, dead, invalidated, deleted, lost; attempt: the run is over, and the member waits as
-- before. A batch that is gone stays gone, and a number that was not reserved names no member.
function steps.ends(batch, words)
  local state, number, jid, about = words[1], tonumber(words[2]), words[3], words[4] or ''
  if not number or number >= field_number(batch, 'next') then return end
  local now = now_seconds()
  local before = state == 'succeeded' or redis.call('EXISTS', batch.tried, batch.members, batch.errors)
  if field_number(batch, 'tokens') > 0 then give_up_token(batch, jid) end
  if state == 'succeeded' then
    succeed(batch, number)
  elseif state ~= 'attempt' then
    fall_short(batch, number, state, jid, about, words[5])
  elseif not has_succeeded(batch, number) then
    move_and_tell(batch, number, 'interrupted')
  end
  redis.call('HSET', batch.key, 'changed_at', now)
  check(batch)
  live_on(batch, now, before ~= true and before < 3)
end

-- The 32-bit words of a bitmap that contain the bits of *numbers*, by index; and the indexes in order.
local function bitmap_words(key, numbers)
  local found, places, get = {}, {}, {}
  for _, number in ipairs(numbers) do
    local place = math.floor(number / 32)
    if not found[place] then
      found[place] = true
      places[#places + 1] = place
      local at = #get
      get[at + 1], get[at + 2], get[at + 3] = 'GET', 'u32', '#' .. string.format('%d', place)
    end
  end
  for at, word in ipairs(redis.call('BITFIELD', key, unpack(get))) do found[places[at]] = word end
  return found, places
end

local function mask_of(number)
  return bit.lshift(1, 31 - number % 32)
end

-- Sets the bits of *numbers*, a thousand at most. Returns those that were not set before. Members that run one after another are
-- neighbours in the bitmap: two commands for all of them cost a quarter of a SETBIT for each.
local function newly_set(key, numbers)
  if #numbers == 0 then return numbers end
  local words, places = bitmap_words(key, numbers)
  local fresh, set = {}, {}
  for _, number in ipairs(numbers) do
    local place, mask = math.floor(number / 32), mask_of(number)
    if bit.band(words[place], mask) == 0 then
      words[place] = bit.bor(words[place], mask)
      fresh[#fresh + 1] = number
    end
  end
  if #fresh == 0 then return fresh end
  for _, place in ipairs(places) do
    local at = #set
    set[at + 1], set[at + 2], set[at + 3] = 'SET', 'u32', '#' .. string.format('%d', place)
    set[at + 4] = string.format('%.0f', words[place] % 2 ^ 32)
  end
  redis.call('BITFIELD', key, unpack(set))
  return fresh
end

-- The runs of these members are over, so they can no longer add jobs.
local function give_up_tokens_of(batch, numbers)
  local is_over = {}
  for _, number in ipairs(numbers) do is_over[string.format('%d', number)] = true end
  local fields = redis.call('HGETALL', batch.key)
  for at = 1, #fields, 2 do
    if string.sub(fields[at], 1, 6) == 'token:' and is_over[string.match(fields[at + 1], '^%S+ (%S+)')] then
      give_up_token(batch, string.sub(fields[at], 7))
    end
  end
end

-- Words: the numbers of members that have succeeded, all at once.
function steps.succeed_all(batch, words)
  local next_number = field_number(batch, 'next')
  local numbers = {}
  for _, word in ipairs(words) do
    local number = tonumber(word)
    if number and number < next_number then numbers[#numbers + 1] = number end
  end
  if #numbers == 0 then return end
  if field_number(batch, 'tokens') > 0 then give_up_tokens_of(batch, numbers) end
  local now, has_tried = now_seconds(), redis.call('EXISTS', batch.tried) == 1
  local fresh = newly_set(batch.succeeded, numbers)
  local untried = #fresh
  local tried = #fresh > 0 and has_tried and bitmap_words(batch.tried, fresh)
  if tried then
    for _, number in ipairs(fresh) do
      if bit.band(tried[math.floor(number / 32)], mask_of(number)) ~= 0 then
        untried = untried - 1
        set_state(batch, number, nil)
      end
    end
  end
  if is_tracked(batch) then
    local finished = {}
    for _, number in ipairs(fresh) do
      if move_row(batch, number, 'finished') then finished[#finished + 1] = number end
    end
    if #finished > 0 then tell(batch, 'finished', finished) end
  end
  if #fresh > 0 then count_up(batch, 'pending', -#fresh) end
  if untried > 0 then count_up(batch, 'untried', -untried) end
  redis.call('HSET', batch.key, 'changed_at', now)
  check(batch)
  live_on(batch, now, false)
end

-- Words: <queue> <"1": a member adds> <token> <first number of the block> <how many of its numbers were handed out before> <sender>.
-- Called before slices of many jobs are pushed by transactions, which write the same as `add`: a job of 250 bytes costs Redis a third of what
-- it costs when it passes through a script. A transaction watches the key that is created here, and changes it; giving up the token
-- removes the key. It expires before the batch does, so that no transaction restores a batch that is gone, and so soon that it does not
-- matter that these transactions do not extend the batch's life.
-- Reply: 1; 0 if a script must do it, which will report what is wrong.
function steps.may_push(batch, words)
  for key, need in pairs({[batch.prefix .. 'queue:' .. words[1]] = 'list', [batch.prefix .. 'queues'] = 'set'}) do
    local is = redis.call('TYPE', key).ok
    if is ~= 'none' and is ~= need then return 0 end
  end
  local block = redis.call('HMGET', batch.blocks, words[4], block_of(words[4], words[6]))
  if not follows_on(block[1], words[5]) or not block[2] then return 0 end
  local now, key = now_seconds(), pushes_key(batch, words[3])
  redis.call('HSET', batch.key, 'changed_at', now)
  live_on(batch, now, redis.call('TTL', batch.blocks) == -1)
  local left = redis.call('TTL', batch.key)
  if left < 2 then return 0 end
  redis.call('HSET', key, 'at', now)
  redis.call('EXPIRE', key, math.max(1, math.min(60, math.floor(left / 20))))
  return 1
end

-- Words: "queue" <name> <job>, or "schedule" <score> <job>. Pushes a job as a member, when a member's end pushes it. If the batch is
-- gone, it is pushed as an ordinary job. For a tracked batch, the JSON of its row follows.
function steps.join(batch, words)
  local job = words[3]
  if is_usable(batch) and not string.find(job, '"sidekiq_py_batch":[', 1, true) then
    local number = add_member(batch, true)
    job = string.sub(job, 1, -2) .. ',"sidekiq_py_batch":["' .. batch.bid .. '",' .. number .. ']'
    if words[4] and is_tracked(batch) then
      add_rows(batch, number, {words[4]}, 1)
      job = job .. ',"sidekiq_py_tracked":true'
    end
    job = job .. '}'
  end
  if words[1] == 'schedule' then return redis.call('ZADD', batch.prefix .. 'schedule', words[2], job) end
  redis.call('SADD', batch.prefix .. 'queues', words[2])
  return redis.call('LPUSH', batch.prefix .. 'queue:' .. words[2], job)
end

local function why_not_join(batch, words)
  local key = batch.prefix .. (words[1] == 'schedule' and 'schedule' or 'queue:' .. words[2])
  local need, is = words[1] == 'schedule' and 'zset' or 'list', redis.call('TYPE', key).ok
  if is ~= 'none' and is ~= need then return 'WRONGTYPE ' .. key .. ' is a ' .. is .. ', and a push needs a ' .. need end
  return wrong_key(batch)
end

-- Returns 1 if it was valid.
local function make_invalid(batch, now)
  if redis.call('HEXISTS', batch.key, 'invalidated_at') == 1 then return 0 end
  -- First, because another program may have overwritten this key.
  redis.call('ZADD', batch.prefix .. 'sidekiq_py:batches:invalid', now, batch.bid)
  redis.call('HSET', batch.key, 'invalidated_at', now)
  live_on(batch, now, false)
  return 1
end

-- Words: <token> <number of the member that adds, or -> <who> <"1": create it if it does not exist> <parent, or empty> <how many
-- pairs of fields> <field> <value> ... then <event>:<i> <callback> ... An existing batch is reopened. Reply: 2 if it is tracked,
-- else 1.
function steps.open(batch, words)
  local seconds, micros = now_seconds()
  if redis.call('EXISTS', batch.key) == 0 then
    local pairs_of_fields = tonumber(words[6])
    local at = 7
    redis.call('HSET', batch.key, 'v', 1, 'created_at', string.format('%d.%06d', seconds, micros), 'next', 0, 'total', 0)
    for _ = 1, pairs_of_fields do
      redis.call('HSET', batch.key, words[at], words[at + 1])
      at = at + 2
    end
    while words[at] do
      redis.call('HSET', batch.callbacks, words[at], words[at + 1])
      at = at + 2
    end
    redis.call('SETBIT', batch.succeeded, 0, 0)
    redis.call('ZADD', batch.prefix .. 'sidekiq_py:batches', seconds, batch.bid)
    redis.call('ZADD', batch.prefix .. 'sidekiq_py:batches:running', seconds, batch.bid)
    local parent = words[5] ~= '' and parent_of(batch, words[5])
    if parent and redis.call('EXISTS', parent.key) == 1 then
      redis.call('HSET', batch.key, 'parent', parent.bid)
      for _, field in ipairs({'kids', 'kids_untried', 'kids_pending'}) do count_up(parent, field, 1) end
      redis.call('SADD', parent.children, batch.bid)
      redis.call('HSET', parent.key, 'changed_at', seconds)
      if redis.call('HEXISTS', parent.key, 'invalidated_at') == 1 then make_invalid(batch, seconds) end
      live_on(parent, seconds, true)
    end
  end
  local text = seconds .. ' ' .. words[2] .. ' ' .. words[3]
  if redis.call('HSET', batch.key, 'token:' .. words[1], text) == 1 then count_up(batch, 'tokens', 1) end
  redis.call('HSET', batch.key, 'changed_at', seconds)
  live_on(batch, seconds, true)
  return is_tracked(batch) and 2 or 1
end

local function why_not_open(batch, words)
  local parent = words[5] ~= '' and parent_of(batch, words[5])
  if redis.call('EXISTS', batch.key) == 1 then
    if words[2] == '-' and redis.call('HEXISTS', batch.key, 'success_at') == 1 then return 'BATCHDONE ' .. batch.bid end
  elseif words[4] ~= '1' then
    return 'BATCHGONE ' .. batch.bid
  elseif parent and redis.call('HEXISTS', parent.key, 'success_at') == 1 then
    return 'BATCHDONE ' .. parent.bid
  end
  return wrong_key(batch) or (parent and wrong_key(parent)) or nil
end

-- Words: <how many> <sender>. Reserves a block of numbers. Reply: its first number.
function steps.reserve(batch, words)
  local first = redis.call('HINCRBY', batch.key, 'next', words[1]) - tonumber(words[1])
  redis.call('HSET', batch.blocks, block_of(first, words[2]), 1)
  if redis.call('TTL', batch.blocks) == -1 then live_on(batch, (now_seconds()), true) end
  return first
end

-- Words: <token>. The block was left cleanly.
function steps.leave(batch, words)
  give_up_token(batch, words[1])
  redis.call('HSET', batch.key, 'changed_at', (now_seconds()))
  check(batch)
  live_on(batch, (now_seconds()), false)
  return 1
end

-- Closes the batch by hand: no more jobs can be added. Reply: how many tokens could still add.
function steps.close(batch)
  local fields = redis.call('HKEYS', batch.key)
  local closed = 0
  for _, field in ipairs(fields) do
    if string.sub(field, 1, 6) == 'token:' then
      give_up_token(batch, string.sub(field, 7))
      closed = closed + 1
    end
  end
  local now = now_seconds()
  redis.call('HSET', batch.key, 'tokens', 0, 'closed_by_hand_at', now, 'changed_at', now)
  check(batch)
  live_on(batch, now, false)
  return closed
end

-- Words: <cursor, or "0" to begin>. Invalidates the batch and some of its children; a child that is opened later is invalid from the
-- start. The caller goes on until the next cursor is "0", and then with the children that have children of their own: all at once,
-- 30,000 children held Redis up for more than a second. Workers keep a copy of the set, which they read at most once a second.
-- Reply: {how many are no longer valid, the next cursor, bids of children that have children}.
function steps.invalidate(batch, words)
  local now = now_seconds()
  local reply = {make_invalid(batch, now), '0'}
  local page = redis.call('SSCAN', batch.children, words[1] or '0', 'COUNT', 100)
  reply[2] = page[1]
  for _, bid in ipairs(page[2]) do
    local child = batch_of(batch.prefix .. 'sidekiq_py:batch:' .. bid)
    if redis.call('EXISTS', child.key) == 1 then
      reply[1] = reply[1] + make_invalid(child, now)
      if redis.call('EXISTS', child.children) == 1 then reply[#reply + 1] = bid end
    end
  end
  return reply
end

-- Words: numbers. Removes these members, unless they have succeeded. Reply: how many were removed.
function steps.remove(batch, words)
  local next_number, removed = field_number(batch, 'next'), 0
  local has_new_key = redis.call('EXISTS', batch.tried) == 0
  for _, word in ipairs(words) do
    local number = tonumber(word)
    -- From now on its bit says that it has ended; if it still runs and succeeds, that is not counted.
    if number and number < next_number and redis.call('SETBIT', batch.succeeded, number, 1) == 0 then
      if redis.call('SETBIT', batch.tried, number, 1) == 0 then count_up(batch, 'untried', -1) end
      set_state(batch, number, nil)
      for _, rows in ipairs({batch.jobs, batch.tracks}) do redis.call('HDEL', rows, number) end
      redis.call('ZREM', batch.states, number)
      count_up(batch, 'total', -1)
      count_up(batch, 'pending', -1)
      removed = removed + 1
    end
  end
  local now = now_seconds()
  redis.call('HSET', batch.key, 'changed_at', now)
  check(batch)
  live_on(batch, now, has_new_key)
  return removed
end

-- Words: <changed_at that the audit read> <number> ... Reply: how many members now count as lost; -1 if the batch has changed.
function steps.lose(batch, words)
  if redis.call('HGET', batch.key, 'changed_at') ~= words[1] then return -1 end
  local now, lost = now_seconds(), {}
  for at = 2, #words do
    local state = state_of(batch, words[at])
    if not has_succeeded(batch, words[at]) and (not state or state == 'failed') then
      fall_short(batch, tonumber(words[at]), 'lost', '', '')
      lost[#lost + 1] = tonumber(words[at])
    end
  end
  if #lost > 0 then
    -- They can no longer add jobs.
    give_up_tokens_of(batch, lost)
    redis.call('HSET', batch.key, 'changed_at', now)
    check(batch)
    live_on(batch, now, true)
  end
  return #lost
end

-- Stops waiting for children that have expired, or whose keys another program has overwritten. Reply: how many.
function steps.count_children(batch)
  if field_number(batch, 'kids_untried') <= 0 and field_number(batch, 'kids_pending') <= 0 then return 0 end
  local untried, pending, gone = 0, 0, {}
  for _, bid in ipairs(redis.call('SMEMBERS', batch.children)) do
    local child = batch_of(batch.prefix .. 'sidekiq_py:batch:' .. bid)
    if redis.call('TYPE', child.key).ok == 'hash' then
      local fields = redis.call('HMGET', child.key, 'complete_at', 'success_at')
      if not fields[1] then untried = untried + 1 end
      if not fields[2] then pending = pending + 1 end
    else
      gone[#gone + 1] = bid
    end
  end
  local missing = math.max(field_number(batch, 'kids_untried') - untried, field_number(batch, 'kids_pending') - pending)
  for _, bid in ipairs(gone) do redis.call('SREM', batch.children, bid) end
  if missing <= 0 then return 0 end
  local now = now_seconds()
  redis.call('HSET', batch.key, 'kids_untried', untried, 'kids_pending', pending, 'changed_at', now)
  check(batch)
  live_on(batch, now, false)
  return missing
end

-- Words: <number> <"1": its payload has a failure>. A member starts to run. If a frozen process starts it late, after it has already
-- run elsewhere, the row stays as it is.
function steps.working(batch, words)
  local number = tonumber(words[1])
  if not number or not is_tracked(batch) or has_succeeded(batch, number) then return 0 end
  local state = row_state(batch, number)
  if words[2] ~= '1' and (state == 'failed' or state == 'dead') then return 0 end
  return move_and_tell(batch, number, 'working')
end

-- Words: <number>. A member that was about to run waits instead, so this was no attempt.
function steps.postponed(batch, words)
  local number = tonumber(words[1])
  if not number or not is_tracked(batch) or row_state(batch, number) ~= 'working' then return 0 end
  local moved = move_and_tell(batch, number, 'enqueued')
  local attempts, rest = string.match(redis.call('HGET', batch.tracks, number), '^(%d+)( .*)$')
  redis.call('HSET', batch.tracks, number, string.format('%d', math.max(attempts - 1, 0)) .. rest)
  return moved
end

-- Words: <number> <at, or -> <total, or -> <message, absent if there is no new one>. The progress of a running member.
function steps.said(batch, words)
  local number = tonumber(words[1])
  local text = is_tracked(batch) and redis.call('HGET', batch.tracks, number)
  if not text or row_state(batch, number) ~= 'working' then return 0 end
  local times, at, total, message = string.match(text, '^(%S+ %S+ %S+ %S+) (%S+) (%S+)\n(.*)$')
  if not message then return 0 end
  if words[2] ~= '-' then at = words[2] end
  if words[3] ~= '-' then total = words[3] end
  redis.call('HSET', batch.tracks, number, times .. ' ' .. at .. ' ' .. total .. '\n' .. (words[4] or message))
  tell(batch, 'working', {number})
  return 1
end

-- Words: <number> <its row's track> ... These members were returned to their queues; one that has started to run since is ignored.
function steps.enqueued_again(batch, words)
  local moved = {}
  for at = 1, #words, 2 do
    local number = tonumber(words[at])
    local is_unchanged = is_tracked(batch) and redis.call('HGET', batch.tracks, words[at]) == words[at + 1]
    if is_unchanged and move_row(batch, number, 'enqueued') then moved[#moved + 1] = number end
  end
  if #moved > 0 then tell(batch, 'enqueued', moved) end
  return #moved
end

-- Deletes the batch; its parent no longer waits for it. Its jobs still run. Works even if another program has overwritten its keys.
function steps.delete(batch)
  local is_hash = redis.call('TYPE', batch.key).ok == 'hash'
  local fields = is_hash and redis.call('HMGET', batch.key, 'parent', 'complete_at', 'success_at') or {}
  local parent = parent_of(batch, fields[1])
  for _, field in ipairs(is_hash and redis.call('HKEYS', batch.key) or {}) do
    -- A transaction that is under way then has no effect.
    if string.sub(field, 1, 6) == 'token:' then redis.call('UNLINK', pushes_key(batch, string.sub(field, 7))) end
  end
  for _, key in ipairs(keys_of(batch)) do redis.call('UNLINK', key) end
  for _, list in ipairs({'sidekiq_py:batches', 'sidekiq_py:batches:running', 'sidekiq_py:batches:invalid'}) do
    redis.pcall('ZREM', batch.prefix .. list, batch.bid)
  end
  if parent and redis.call('EXISTS', parent.key) == 1 and not wrong_key(parent) then
    redis.call('SREM', parent.children, batch.bid)
    if not fields[2] then count_up(parent, 'kids_untried', -1) end
    if not fields[3] then count_up(parent, 'kids_pending', -1) end
    local now = now_seconds()
    redis.call('HSET', parent.key, 'changed_at', now)
    check(parent)
    live_on(parent, now, false)
  end
  return 1
end

-- Pushes callbacks that their queue had refused. Reply: how many were pushed.
function steps.deliver_late(batch)
  local delivered = 0
  for _, field in ipairs(redis.call('HKEYS', batch.callbacks)) do
    if string.sub(field, 1, 5) == 'late:' then
      local queue, job = string.match(redis.call('HGET', batch.callbacks, field), '^([^\n]*)\n(.*)$')
      if queue then
        redis.call('HDEL', batch.callbacks, field)
        if deliver(batch, queue, job) then delivered = delivered + 1 end
      end
    end
  end
  return delivered
end

-- See `NEEDED_BY_ADD`.
local NEEDED = {HINCRBY = 3, HSET = 3, HDEL = 2, SETBIT = 3, ZADD = 3, ZREM = 2}
local NEEDED_TO_ADD = {LPUSH = 2, SADD = 2, HMGET = 2, EXPIRE = 2, TTL = 1, TIME = 0}
local ADDS = {open = true, join = true}

local function look(step, batch, words)
  local why = forbidden(batch, NEEDED) or (ADDS[step] and forbidden(batch, NEEDED_TO_ADD))
  if why then return why end
  if step == 'may_push' then
    local fields = redis.call('HMGET', batch.key, 'success_at', 'token:' .. words[3])
    return why_closed(batch, words[2], fields[1], fields[2]) or wrong_key(batch)
  end
  if step == 'open' then return why_not_open(batch, words) end
  if step == 'join' then return why_not_join(batch, words) end
  local may_be_gone = {ends = true, succeed_all = true, working = true, said = true, postponed = true, enqueued_again = true}
  if not may_be_gone[step] and redis.call('EXISTS', batch.key) == 0 then
    return 'BATCHGONE ' .. batch.bid
  end
  return step ~= 'delete' and wrong_key(batch) or nil
end

return {look = look, steps = steps, add_rows = add_rows}
