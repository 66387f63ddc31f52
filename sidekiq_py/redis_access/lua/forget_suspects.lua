-- Removes jobs from the suspects, each only if its record has not changed since it was read.
--
-- KEYS[1] hash  suspects: SHA-1 of the bytes -> "<deaths>:<first, epoch s>"
-- ARGV[1..] pairs: SHA-1, the record that was read
--
-- Reply: how many were removed.

local removed = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    removed = removed + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return removed
