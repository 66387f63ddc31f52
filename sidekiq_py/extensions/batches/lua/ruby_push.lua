
-- A push by Ruby's client, with the membership of its jobs.
-- KEYS[1] hash  the batch   KEYS[2..] the keys of the commands
-- ARGV[1..9] the arguments of `add`   ARGV[10] the mark of this slice
-- ARGV[11] how many more arguments of `add` follow: those of a tracked batch
-- then the commands that push, each as <number of words> <word> ...; the second word is the index of its key
-- Reply: 1; 0 if this slice was already pushed. Error: BATCHGONE, BATCHDONE, BATCHCLOSED, BATCHROLLEDBACK or WRONGTYPE; nothing was written.
local batch = batch_of(KEYS[1])
local words = {unpack(ARGV, 1, 9)}
local commands = 12 + tonumber(ARGV[11])
for at = 12, commands - 1 do words[#words + 1] = ARGV[at] end
if redis.call('HEXISTS', batch.blocks, ARGV[10]) == 1 then return 0 end
local why = look('add', batch, words)
local needs = {LPUSH = 'list', SADD = 'set', ZADD = 'zset'}
local at = commands
while not why and ARGV[at] do
  local key = KEYS[tonumber(ARGV[at + 2])]
  local need, is = needs[ARGV[at + 1]], redis.call('TYPE', key).ok
  if need and is ~= 'none' and is ~= need then why = 'WRONGTYPE ' .. key .. ' is a ' .. is .. ', and Sidekiq needs a ' .. need end
  if need and redis.acl_check_cmd and not redis.acl_check_cmd(ARGV[at + 1], key, '0', '') then
    why = 'NOPERM this user may not use ' .. ARGV[at + 1] .. ' on ' .. key
  end
  at = at + tonumber(ARGV[at]) + 1
end
if why then return redis.error_reply(why) end
-- First, because it fails before it writes if the key of the token's pushes has another type. With its mark, the slice would count as
-- pushed.
run('add', batch, words)
redis.call('HSET', batch.blocks, ARGV[10], 1)
at = commands
while ARGV[at] do
  local count = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  redis.call(unpack(ARGV, at + 1, at + count))
  at = at + count + 1
end
return 1
