-- Takes a turn: moves a field on from the value that was read, and runs the commands that the turn calls for.
--
-- KEYS[1] hash  whose turn it is   KEYS[2] set  fields that are held back   KEYS[3..] every key that the commands name
-- ARGV[1] field   ARGV[2] the value that was read; empty for none   ARGV[3] the new value
-- ARGV[4..] the commands, each as <number of words> <word> ..., the second word being the number of its key
--
-- Reply: 1, or 0 if the value is another one by now, or the field is held back; then nothing was written.

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end

-- First, so that a command that fails cannot be repeated without end.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])

local at = 4
while ARGV[at] do
  local words = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  redis.call(unpack(ARGV, at + 1, at + words))
  at = at + words + 1
end
return 1
