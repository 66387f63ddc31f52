-- Removes processes from the registry whose heartbeat has expired.
--
-- KEYS[1] set  identities of all processes   KEYS[2..] hashes: the heartbeats of the processes in doubt
-- ARGV[1..] the identity of each of these
--
-- Reply: how many were removed. A process that beats again just now stays, because check and removal are one step.

local gone = 0
for i = 2, #KEYS do
  if redis.call('HEXISTS', KEYS[i], 'info') == 0 then
    gone = gone + redis.call('SREM', KEYS[1], ARGV[i - 1])
  end
end
return gone
