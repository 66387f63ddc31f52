-- Takes processes out of the registry whose heartbeat has expired.
--
-- KEYS[1] set  identities of all processes   KEYS[2..] hashes: the heartbeats of those in doubt
-- ARGV[1..] the identity of each of these
--
-- Reply: how many were taken out. One that beats again in this instant stays: looking and taking out are one step.

local gone = 0
for i = 2, #KEYS do
  if redis.call('HEXISTS', KEYS[i], 'info') == 0 then
    gone = gone + redis.call('SREM', KEYS[1], ARGV[i - 1])
  end
end
return gone
