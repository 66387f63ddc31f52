-- Reads the members of a sorted set that come after a position, whatever was added or removed since that position was read.
--
-- KEYS[1] zset
-- ARGV[1] "down": from the highest score; "up": from the lowest   ARGV[2] how many
-- ARGV[3] score of the last member seen, as Redis wrote it   ARGV[4] that member; both are absent at the start
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

local start = 0
if ARGV[3] then start = first_unseen(ARGV[3], ARGV[4]) end
return redis.call(range, KEYS[1], start, start + tonumber(ARGV[2]) - 1, 'WITHSCORES')
