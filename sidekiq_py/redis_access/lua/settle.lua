-- Ends one job: if it is still in flight, runs the commands that its end calls for, then removes it.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2..] every key that the commands name
-- ARGV[1] field
-- ARGV[2] how many commands must succeed; they run first, so that an error leaves the job in flight
-- ARGV[3..] the commands, each as <number of words> <word> ..., the second word being the number of its key; those after
-- the first ARGV[2] are counters and may fail
--
-- Reply: 1, or 0 if the job was not in flight: somebody else owns it by now, and nothing was written.

if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end

-- Removes nothing. A script that has written is not refused for want of memory any more, and with the job's end memory comes free.
redis.call('HDEL', KEYS[1], '')

local at = 3
local number = 0
local vital = tonumber(ARGV[2])
local removed = false
while ARGV[at] do
  local words = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  if number < vital then
    redis.call(unpack(ARGV, at + 1, at + words))
  else
    if not removed then
      redis.call('HDEL', KEYS[1], ARGV[1])
      removed = true
    end
    redis.pcall(unpack(ARGV, at + 1, at + words))
  end
  number = number + 1
  at = at + words + 1
end
if not removed then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
