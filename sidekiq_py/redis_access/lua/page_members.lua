-- Reads the members of a sorted set that come after a position, whatever was added or removed since that position was read.
--
-- KEYS[1] zset
-- ARGV[1] "down": from the highest score; "up": from the lowest   ARGV[2] how many   ARGV[3] how many bytes, about
-- ARGV[4] score of the last member seen, as Redis wrote it   ARGV[5] that member; both are absent at the start
--
-- Reply: member, score, member, score, ...
--
-- Members with the same score are in the order of their bytes, so a position is a score and a member. If the member is gone,
-- a binary search finds its position among those with its score, because a million jobs may be due at the same instant.

local down = ARGV[1] == 'down'
local rank_of = down and 'ZREVRANK' or 'ZRANK'
local range = down and 'ZREVRANGE' or 'ZRANGE'

-- Byte by byte, because Lua's own comparison follows the server's locale, and Redis's order does not.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local function is_behind(member, place)
  if down then return is_less(member, place) end
  return is_less(place, member)
end

local function first_unseen(score, place)
  if redis.call('ZSCORE', KEYS[1], place) == score then
    return redis.call(rank_of, KEYS[1], place) + 1
  end
  local before = down and redis.call('ZCOUNT', KEYS[1], '(' .. score, '+inf')
    or redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. score)
  local low, high = 0, redis.call('ZCOUNT', KEYS[1], score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = redis.call(range, KEYS[1], before + middle, before + middle)
    if is_behind(found[1], place) then high = middle else low = middle + 1 end
  end
  return before + low
end

local place, most = 0, tonumber(ARGV[2])
if ARGV[4] then place = first_unseen(ARGV[4], ARGV[5]) end

-- The first few show how many fit: two hundred members of 5 MB held Redis up for a second.
local reply, bytes, number, part = {}, 0, 0, 5
repeat
  local found = redis.call(range, KEYS[1], place + number, place + math.min(most, number + part) - 1, 'WITHSCORES')
  for i = 1, #found, 2 do
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = found[i + 1]
    bytes = bytes + #found[i]
    number = number + 1
  end
  part = math.floor((tonumber(ARGV[3]) - bytes) * number / math.max(1, bytes))
until #found == 0 or number >= most or part < 1
return reply
