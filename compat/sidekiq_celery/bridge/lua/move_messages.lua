-- Moves messages: takes each one from its source and writes its new form, in one step; or does neither.
--
-- KEYS[1..] every key that is referred to below by its number
-- ARGV[1] seconds since the epoch after which nothing is done; 0 for no limit
-- ARGV[2] number of the hash that counts what was done; 0 for none
-- ARGV[3..] entries, each as <field to count in, or empty> <n> <n words of a condition> <n> <n words of a command>; the
-- second word of a condition or a command is the number of its key
--
-- An empty condition always holds. An empty command writes nothing. Conditions are
--   LREM <list> <text>                     the text is in the list; the one nearest to the tail is removed
--   ZREM <zset> <member>                   the member is there; it is removed
--   HDEL <hash> <field> <text> [<zset>]    the field holds the text; it is removed from both
--   NEW <string> <seconds>                 there is no such mark; it is set, for that long
--   MARK <string> <seconds>                always; the mark is set, for that long
--
-- Reply: the server's time in seconds, then 1 or 0 for each entry; only the time if it was too late. Error: WRONGTYPE with the
-- name of the key, or NOPERM (Redis 7.0 or later); nothing was done then.

local now = tonumber(redis.call('TIME')[1])
if ARGV[1] ~= '0' and now > tonumber(ARGV[1]) then return {now} end

-- Redis does not undo what a script has written before an error, so all keys are checked first.
local needs = {
  LREM = 'list', LPUSH = 'list', ZREM = 'zset', ZADD = 'zset', HDEL = 'hash', HSET = 'hash', SADD = 'set', NEW = 'string',
  MARK = 'string', HINCRBY = 'hash',
}
local seen, allowed = {}, {}

-- The command that a verb runs, and arguments with which to ask whether the user may run it.
local command_of = {NEW = 'SET', MARK = 'SET'}
local arguments = {
  LREM = {1, ''}, LPUSH = {''}, ZREM = {''}, ZADD = {0, ''}, HDEL = {''}, HSET = {'', ''}, SADD = {''}, SET = {''},
  HINCRBY = {'', 1},
}

-- Without this, a message that was taken from its list before its new form was refused would be lost.
local function is_forbidden(command, key)
  if not redis.acl_check_cmd then return false end
  local about = command .. key
  if allowed[about] == nil then
    local is_known, may = pcall(redis.acl_check_cmd, command, key, unpack(arguments[command]))
    allowed[about] = may or not is_known
  end
  return not allowed[about]
end

local function obstacle(verb, number)
  local key, need = KEYS[tonumber(number)], needs[verb]
  if not need then return nil end
  local command = command_of[verb] or verb
  if is_forbidden(command, key) then return 'NOPERM this user may not use ' .. command .. ' on ' .. key end
  -- Without the permission to run TYPE, the check is skipped.
  seen[key] = seen[key] or redis.pcall('TYPE', key).ok or 'none'
  if seen[key] ~= 'none' and seen[key] ~= need then
    return 'WRONGTYPE ' .. key .. ' is a ' .. seen[key] .. ', and ' .. verb .. ' needs a ' .. need
  end
  return nil
end

local at = 3
local why = nil
if ARGV[2] ~= '0' then why = obstacle('HINCRBY', ARGV[2]) end
while ARGV[at] and not why do
  local n = tonumber(ARGV[at + 1])
  if n > 0 then why = obstacle(ARGV[at + 2], ARGV[at + 3]) end
  if not why and n > 4 and ARGV[at + 2] == 'HDEL' then why = obstacle('ZREM', ARGV[at + 6]) end
  at = at + 2 + n
  n = tonumber(ARGV[at])
  if n > 0 and not why then why = obstacle(ARGV[at + 1], ARGV[at + 2]) end
  at = at + 1 + n
end
if why then return redis.error_reply(why) end

local function holds(first, n)
  if n == 0 then return true end
  local verb, key = ARGV[first], KEYS[tonumber(ARGV[first + 1])]
  if verb == 'LREM' then return redis.call('LREM', key, -1, ARGV[first + 2]) == 1 end
  if verb == 'ZREM' then return redis.call('ZREM', key, ARGV[first + 2]) == 1 end
  if verb == 'NEW' then return redis.call('SET', key, 1, 'EX', ARGV[first + 2], 'NX') ~= false end
  if verb == 'MARK' then
    redis.call('SET', key, 1, 'EX', ARGV[first + 2])
    return true
  end
  local field = ARGV[first + 2]
  if redis.call('HGET', key, field) ~= ARGV[first + 3] then return false end
  redis.call('HDEL', key, field)
  if n > 4 then redis.call('ZREM', KEYS[tonumber(ARGV[first + 4])], field) end
  return true
end

local reply, counted = {now}, {}
at = 3
while ARGV[at] do
  local field, n = ARGV[at], tonumber(ARGV[at + 1])
  local command = at + 2 + n
  local words = tonumber(ARGV[command])
  local done = holds(at + 2, n)
  if done and words > 0 then
    ARGV[command + 2] = KEYS[tonumber(ARGV[command + 2])]
    redis.call(unpack(ARGV, command + 1, command + words))
  end
  if done and field ~= '' then counted[field] = (counted[field] or 0) + 1 end
  reply[#reply + 1] = done and 1 or 0
  at = command + 1 + words
end
if ARGV[2] ~= '0' then
  for field, count in pairs(counted) do redis.call('HINCRBY', KEYS[tonumber(ARGV[2])], field, count) end
end
return reply
