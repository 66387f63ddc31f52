-- Takes a turn: moves a field on from the value that was read, and runs the commands that the turn calls for.
--
-- KEYS[1] hash  whose turn it is   KEYS[2] set  fields that are held back   KEYS[3..] every key that the commands name
-- ARGV[1] field   ARGV[2] the value that was read; empty for none   ARGV[3] the new value
-- ARGV[4..] the commands, each as <number of words> <word> ..., the second word being the number of its key
--
-- One command is a condition on the next <n>, which are passed over where it does not hold:
--   LOCK <string> <text> <n> <milliseconds>   there is nothing at the key yet; the text is put there for as long
--
-- Reply: 1, or 0 if the value is another one by now, or the field is held back; then nothing was written.

if (redis.call('HGET', KEYS[1], ARGV[1]) or '') ~= ARGV[2] then return 0 end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 0 end

-- First, so that a command that fails cannot be repeated without end.
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])

local at, skipped = 4, 0
while ARGV[at] do
  local words = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  if skipped > 0 then
    skipped = skipped - 1
  elseif ARGV[at + 1] == 'LOCK' then
    local is_taken = redis.call('SET', ARGV[at + 2], ARGV[at + 3], 'NX', 'PX', ARGV[at + 5])
    if not is_taken then skipped = tonumber(ARGV[at + 4]) end
  else
    redis.call(unpack(ARGV, at + 1, at + words))
  end
  at = at + words + 1
end
return 1
