-- Reads the due members of a set of waiting jobs, the earliest first.
--
-- KEYS[1] zset
-- ARGV[1] now, epoch s   ARGV[2] skip those that were due by this time, epoch s; "" skips none   ARGV[3] how many more to skip
-- ARGV[4] how many to read   ARGV[5] how many bytes; a larger member comes alone
--
-- Reply: {how many more are due, member, member, ...}
--
-- Reads one member at a time, because Redis does not tell sizes: a range of 20 members of 50 MB blocked Redis for 9 s.

local first = tonumber(ARGV[3])
if ARGV[2] ~= '' then first = first + redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[2]) end
local due = redis.call('ZCOUNT', KEYS[1], '-inf', ARGV[1])
local stop = math.min(due, first + tonumber(ARGV[4]))
local bytes_left = tonumber(ARGV[5])
local reply = {0}
local rank = first
while rank < stop do
  local member = redis.call('ZRANGE', KEYS[1], rank, rank)[1]
  bytes_left = bytes_left - #member
  if bytes_left < 0 and rank > first then break end
  reply[#reply + 1] = member
  rank = rank + 1
end
reply[1] = math.max(0, due - rank)
return reply
