-- Runs commands one after another, each with one key.
--
-- KEYS[1..] the key of each command
-- ARGV[1..] for each command: its name, the number of its words behind the key, and these words
--
-- Reply: the reply to each.

local replies, at = {}, 1
for place, key in ipairs(KEYS) do
  local last = at + 1 + ARGV[at + 1]
  replies[place] = redis.call(ARGV[at], key, unpack(ARGV, at + 2, last))
  at = last + 1
end
return replies
