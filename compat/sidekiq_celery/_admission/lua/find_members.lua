-- Finds jobs in a slice of a sorted set by the text of one of their keys.
--
-- KEYS[1] zset
-- ARGV[1] first rank   ARGV[2] last rank   ARGV[3] the key, as in "jid"   ARGV[4..] texts
--
-- Reply: the members in whose text the key has one of these values; the match may be inside an argument.

local wanted = {}
for i = 4, #ARGV do wanted[ARGV[i]] = true end
local key = '"' .. ARGV[3] .. '"'

local function is_wanted(job)
  local at = 1
  while true do
    local from, to = string.find(job, key, at, true)
    if not from then return false end
    local text = string.match(job, '^%s*:%s*"([^"]*)"', to + 1)
    if text and wanted[text] then return true end
    at = to + 1
  end
end

local found = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2])) do
  if is_wanted(member) then found[#found + 1] = member end
end
return found
