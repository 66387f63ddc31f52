-- Writes what the gem sidekiq-batch writes when a job of one of its batches ends.
--
-- Source: sidekiq-batch 0.2.0 (3ae5230), batch.rb (process_successful_job, process_failed_job, enqueue_callbacks, cleanup_redis) and
-- callback.rb (Finalize). The gem uses a transaction for each of these; here they are one step. Its counting is copied with its
-- faults, because all processes of a mixed fleet must count in the same way. Two things that the gem does are omitted, because nothing
-- reads the result: it writes to batches that are gone, and it lets `-complete` sets live forever.
--
-- Keys of a batch, all with the same prefix:
--   BID-<bid> hash                  created_at, pending, total, children, parent_bid, callback_queue, description; `callback_batch` for
--                                   a batch whose jobs are the callbacks of another one; `complete` and `success` once those were enqueued
--   BID-<bid>-jids set              the jobs that have not succeeded;  -failed set: those that have failed and not succeeded since
--   BID-<bid>-complete set, -success set             bids of children
--   BID-<bid>-callbacks-<event> set                  {"callback": ..., "opts": ...}
--
-- Defines look(key, words) and run(key, words). words: bid; `ok` or `failed`; jid; now, as Ruby writes a float; now, as this release
-- writes times into jobs; a random text.

local LIFE = 2592000
local LETTERS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
local SETS = {'-jids', '-failed', '-complete', '-success', '-callbacks-complete', '-callbacks-success'}

local function prefix_of(key, bid) return string.sub(key, 1, #key - #bid - #'BID-') end

-- The JSON text of each value of an object, by name. Decoding with cjson would change numbers and turn empty arrays into objects.
local function values_of(text)
  if string.match(text, '^%s*(.?)') ~= '{' or not pcall(cjson.decode, text) then return nil end
  local found, depth, name, from, at = {}, 0, nil, nil, 1
  while at <= #text do
    local char = string.sub(text, at, at)
    if char == '"' then
      local start = at
      at = at + 1
      while string.sub(text, at, at) ~= '"' do at = at + (string.sub(text, at, at) == '\\' and 2 or 1) end
      if depth == 1 and not name then name = cjson.decode('[' .. string.sub(text, start, at) .. ']')[1] end
    elseif char == '{' or char == '[' then
      depth = depth + 1
    elseif char == ':' and depth == 1 then
      from = at + 1
    elseif (char == ',' and depth == 1) or ((char == '}' or char == ']') and depth == 1) then
      if name then found[name] = string.sub(text, from, at - 1) end
      name = nil
      if char ~= ',' then depth = 0 end
    elseif char == '}' or char == ']' then
      depth = depth - 1
    end
    at = at + 1
  end
  return found
end

-- JSON as Ruby writes it, without escaped slashes.
local function quoted(text) return (string.gsub(cjson.encode(text), '\\/', '/')) end

-- The bid and the event of the batch whose callbacks are the jobs of this one.
local function called_back_for(key)
  local callback = redis.call('SMEMBERS', key .. '-callbacks-complete')[1]
  local options = callback and values_of(callback) and cjson.decode(callback).opts
  if type(options) ~= 'table' then return nil end
  return options.bid, options.event
end

-- What a step runs after it has counted the job, and how many words follow each name. If it were refused then, the job's end would be
-- sent again, and counted again.
local NEEDED = {
  HINCRBY = 3, HSET = 3, HGET = 2, SADD = 2, SREM = 2, SMEMBERS = 1, SCARD = 1, DEL = 1, EXPIRE = 2, LPUSH = 2,
}

-- Detects commands that the user may not run (Redis can tell since 7.0), and keys of the wrong type and counters that are not integers,
-- which another program must have written. Nothing is written then.
local function look(key, words)
  local sample = {key, 0, 0}
  for name, count in pairs(redis.acl_check_cmd and NEEDED or {}) do
    if not redis.acl_check_cmd(name, unpack(sample, 1, count)) then return 'NOPERM this user may not use ' .. name .. ' on ' .. key end
  end
  local prefix = prefix_of(key, words[1])
  local function wrong(name, need)
    local is = redis.call('TYPE', name).ok
    if is ~= 'none' and is ~= need then return 'WRONGTYPE ' .. name .. ' is a ' .. is .. ', and sidekiq-batch needs a ' .. need end
  end
  local waiting, seen = {words[1]}, {}
  while #waiting > 0 do
    local bid = table.remove(waiting)
    local batch = prefix .. 'BID-' .. bid
    if not seen[bid] then
      seen[bid] = true
      local why = wrong(batch, 'hash')
      for _, set in ipairs(SETS) do why = why or wrong(batch .. set, 'set') end
      if why then return why end
      local fields = redis.call('HMGET', batch, 'pending', 'children', 'parent_bid', 'callback_batch', 'callback_queue', 'total')
      for _, at in ipairs({1, 2, 6}) do
        if fields[at] and not string.find(fields[at], '^-?%d+$') then return 'ERR ' .. batch .. ' holds no integer for HINCRBY' end
      end
      why = wrong(prefix .. 'queue:' .. (fields[5] or 'default'), 'list')
      if why then return why end
      waiting[#waiting + 1] = fields[3] or nil
      if fields[4] then waiting[#waiting + 1] = called_back_for(batch) end
    end
  end
  return wrong(prefix .. 'queues', 'set')
end

local function run(key, words)
  local job_bid, outcome, jid, now, stamp, seed = unpack(words)
  local prefix = prefix_of(key, job_bid)
  -- The batch that encloses what is enqueued: the gem forgets it after a success, but not after a failure.
  local around = outcome == 'failed' and job_bid or nil
  local drawn = 0
  local enqueue

  local function key_of(bid) return prefix .. 'BID-' .. bid end
  local function is_there(bid) return redis.call('EXISTS', key_of(bid)) == 1 end
  local function number(bid, field) return tonumber(redis.call('HGET', key_of(bid), field) or 0) end
  local function size(bid, set) return redis.call('SCARD', key_of(bid) .. set) end

  local function random_hex()
    drawn = drawn + 1
    return redis.sha1hex(seed .. ':' .. drawn)
  end

  -- 80 random bits in URL-safe base64.
  local function new_bid()
    local hex, letters = random_hex(), {}
    for place = 1, 13 do
      local byte = tonumber(string.sub(hex, 2 * place - 1, 2 * place), 16)
      letters[place] = string.sub(LETTERS, byte % 64 + 1, byte % 64 + 1)
    end
    local last = tonumber(string.sub(hex, 27, 28), 16) % 4
    return table.concat(letters) .. string.sub('AQgw', last + 1, last + 1)
  end

  local function add(key, member)
    redis.call('SADD', key, member)
    redis.call('EXPIRE', key, LIFE)
  end

  local function clean(bid)
    redis.call('DEL', key_of(bid))
    for _, set in ipairs(SETS) do redis.call('DEL', key_of(bid) .. set) end
  end

  -- A child has finished, so its parent may be complete, too.
  local function complete_parent(parent, bid, has_succeeded)
    if not is_there(parent) then return end
    if has_succeeded then add(key_of(parent) .. '-success', bid) end
    add(key_of(parent) .. '-complete', bid)
    redis.call('HINCRBY', key_of(parent), 'pending', 0)
    redis.call('HINCRBY', key_of(parent), 'children', 0)
    if size(parent, '-complete') == number(parent, 'children') and number(parent, 'pending') == size(parent, '-failed') then
      enqueue('complete', parent)
    end
  end

  -- The callbacks of a batch for an event have run, or it has none. callbacks_bid: the batch that contained them, or the same batch.
  local function finalize(event, bid, callbacks_bid)
    local parent = redis.call('HGET', key_of(bid), 'parent_bid')
    if event == 'success' then
      if parent then complete_parent(parent, bid, true) end
    elseif is_there(bid) then
      redis.call('HINCRBY', key_of(bid), 'pending', 0)
      redis.call('HINCRBY', key_of(bid), 'children', 0)
      if number(bid, 'pending') == 0 and number(bid, 'children') == size(bid, '-success') then
        enqueue('success', bid)
      elseif parent then
        complete_parent(parent, bid, false)
      end
    end
    if callbacks_bid ~= bid then clean(callbacks_bid) end
    if event == 'success' then clean(bid) end
  end

  local function push_callbacks(event, bid, callbacks)
    local batch, head = key_of(bid), new_bid()
    local queue = redis.call('HGET', batch, 'callback_queue') or 'default'
    local parent = redis.call('HGET', batch, 'parent_bid')
    local own = key_of(head)
    redis.call('HSET', own, 'callback_batch', 'true', 'created_at', now)
    local options = '{"bid":' .. quoted(bid) .. ',"event":"' .. event .. '"}'
    add(own .. '-callbacks-complete', '{"callback":"Sidekiq::Batch::Callback::Finalize#dispatch","opts":' .. options .. '}')
    if around and is_there(around) then
      redis.call('HSET', own, 'parent_bid', around)
      redis.call('HINCRBY', key_of(around), 'children', 1)
      redis.call('EXPIRE', key_of(around), LIFE)
    end
    redis.call('SADD', prefix .. 'queues', queue)
    for _, text in ipairs(callbacks) do
      -- A callback that cannot be read is passed on as a text, so that Ruby fails on it and shows it.
      local callback = values_of(text) or {callback = quoted(text)}
      local callback_jid = string.sub(random_hex(), 1, 24)
      local args = {
        callback.callback or 'null', '"' .. event .. '"', callback.opts or 'null', quoted(bid), parent and quoted(parent) or 'null',
      }
      redis.call('LPUSH', prefix .. 'queue:' .. queue, table.concat({
        '{"retry":true,"queue":', quoted(queue), ',"class":"Sidekiq::Batch::Callback::Worker","args":[', table.concat(args, ','),
        '],"jid":"', callback_jid, '","created_at":', stamp, ',"bid":"', head, '","enqueued_at":', stamp, '}',
      }))
      add(own .. '-jids', callback_jid)
    end
    redis.call('HINCRBY', own, 'pending', #callbacks)
    redis.call('HINCRBY', own, 'total', #callbacks)
    redis.call('EXPIRE', own, LIFE)
  end

  enqueue = function(event, bid)
    local batch = key_of(bid)
    if not is_there(bid) or redis.call('HGET', batch, event) == 'true' then return end
    redis.call('HSET', batch, event, 'true')
    local callbacks = redis.call('SMEMBERS', batch .. '-callbacks-' .. event)
    if redis.call('HGET', batch, 'callback_batch') then
      local for_bid, for_event = called_back_for(batch)
      if event == 'complete' and for_bid then finalize(for_event, for_bid, bid) else finalize(event, bid, bid) end
    elseif #callbacks == 0 then
      finalize(event, bid, bid)
    else
      push_callbacks(event, bid, callbacks)
    end
  end

  local batch = key_of(job_bid)
  if not is_there(job_bid) then return 0 end
  -- Read before the job is removed, as the gem does.
  local pending = redis.call('HINCRBY', batch, 'pending', outcome == 'ok' and -1 or 0)
  if outcome == 'failed' then add(batch .. '-failed', jid) end
  local failed = size(job_bid, '-failed')
  local children = redis.call('HINCRBY', batch, 'children', 0)
  local complete, success = size(job_bid, '-complete'), size(job_bid, '-success')
  if outcome == 'ok' then
    redis.call('SREM', batch .. '-failed', jid)
    redis.call('SREM', batch .. '-jids', jid)
    redis.call('EXPIRE', batch, LIFE)
    local has_succeeded = pending == 0 and children == success
    if (pending == failed and children == complete) or has_succeeded then
      enqueue('complete', job_bid)
      if has_succeeded then enqueue('success', job_bid) end
    end
  else
    local parent = redis.call('HGET', batch, 'parent_bid')
    if parent and is_there(parent) then
      -- This also happens at each further failure of the same job, so such a parent never calls back; it does not in Ruby either.
      redis.call('HINCRBY', key_of(parent), 'pending', 1)
      add(key_of(parent) .. '-failed', jid)
    end
    if pending == failed and children == complete then enqueue('complete', job_bid) end
  end
  return 1
end
