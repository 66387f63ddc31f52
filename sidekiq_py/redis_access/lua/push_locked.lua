-- Takes a lock and runs the commands that go with it, or says who has it.
--
-- KEYS[1] string  the lock   KEYS[2..] every key that the commands name
-- ARGV[1] text of who takes it   ARGV[2] for how many milliseconds at most
-- ARGV[3..] the commands, each as <number of words> <word> ..., the second word being the number of its key
--
-- Reply: the text of who has it now: ARGV[1] if it was free, and the commands were run. Error: that of a command; those
-- after it were not run, and the lock is free.

local holder = redis.call('GET', KEYS[1])
if holder then return holder end

redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])

local at = 3
while ARGV[at] do
  local words = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  local reply = redis.pcall(unpack(ARGV, at + 1, at + words))
  if type(reply) == 'table' and reply.err then
    redis.call('DEL', KEYS[1])
    return reply
  end
  at = at + words + 1
end
return ARGV[1]
