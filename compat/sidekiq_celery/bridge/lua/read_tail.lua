-- Reads a window of a list, from the tail.
--
-- KEYS[1] list
-- ARGV[1] how many texts at the tail to skip   ARGV[2] how many to read at most   ARGV[3] bytes to read at most, except that
-- the first text is always read   ARGV[4] size in bytes above which a text's length is returned instead
--
-- Reply: each text, or its length if it is too large.

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
