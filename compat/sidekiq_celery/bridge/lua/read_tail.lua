-- Reads a window of a list, the tail first.
--
-- KEYS[1] list
-- ARGV[1] how many texts at the tail to pass over   ARGV[2] how many to read at most   ARGV[3] bytes to read at most, the first
-- text aside   ARGV[4] bytes of a text above which its length is given instead
--
-- Reply: a text each, or the length of one that is too large.

local found, bytes = {}, 0
local first = tonumber(ARGV[1]) + 1
local last = math.min(first + tonumber(ARGV[2]) - 1, redis.call('LLEN', KEYS[1]))
for at = first, last do
  local text = redis.call('LINDEX', KEYS[1], -at)
  if #text > tonumber(ARGV[4]) then
    found[#found + 1] = #text
  else
    bytes = bytes + #text
    if bytes > tonumber(ARGV[3]) and #found > 0 then break end
    found[#found + 1] = text
  end
end
return found
