-- Ends one job: if it is still in flight, runs the commands that its end calls for, then removes it.
--
-- KEYS[1] hash  in-flight jobs   KEYS[2..] every key that the commands name
-- ARGV[1] field; empty for a job that is in flight nowhere, whose commands are run without condition
-- ARGV[2] how many commands must succeed; they run first, so that an error leaves the job in flight
-- ARGV[3..] the commands, each as <number of words> <word> ..., the second word being the number of its key; those after
-- the first ARGV[2] are counters and may fail
--
-- Three commands are conditions on the next <n>, which are passed over where they do not hold:
--   ONCE <hash> <mark> <n>                   nobody has set the mark yet; it is set
--   JOIN <hash> <mark> <n> <parts> <seam>    likewise, and the hash has the fields 0 to <parts> - 1, and as many more as
--                                            its field `more` says; in the words of the n commands their texts, joined by
--                                            commas, take the place of the seam
--   UNLESS <string> <start> <n>              the text at the key does not begin so
--
-- Reply: 1, or 0 if the job was not in flight: somebody else owns it by now, and nothing was written.

if ARGV[1] ~= '' and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end

-- Removes nothing. A script that has written is not refused for want of memory any more, and with the job's end memory comes free.
redis.call('HDEL', KEYS[1], '')

local function joined(key, parts)
  parts = parts + (redis.call('HGET', key, 'more') or 0)
  -- Asked first, as the fields are gone through one by one.
  if redis.call('HLEN', key) < parts then return nil end
  local texts = {}
  for part = 0, parts - 1 do
    local text = redis.call('HGET', key, part)
    if not text then return nil end
    texts[#texts + 1] = text
  end
  return table.concat(texts, ',')
end

-- Plain text on both sides: a pattern would take the text of a job for a formula.
local function spliced(word, seam, text)
  local from, to = string.find(word, seam, 1, true)
  if not from then return word end
  return string.sub(word, 1, from - 1) .. text .. string.sub(word, to + 1)
end

-- How many of the following commands are to be passed over; and the seam and the text for those that are not.
local function judged(at)
  local verb, key, mark, n = ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], tonumber(ARGV[at + 4])
  if verb == 'UNLESS' then
    -- An error, as of a key that is no string, is no text.
    return redis.pcall('GETRANGE', key, 0, #mark - 1) == mark and n or 0
  end
  local text = nil
  if verb == 'JOIN' then
    text = joined(key, tonumber(ARGV[at + 5]))
    if not text then return n end
  end
  if redis.call('HSETNX', key, mark, 1) == 0 then return n end
  return 0, n, ARGV[at + 6], text
end

local at = 3
local number = 0
local vital = tonumber(ARGV[2])
local removed = false
local skipped, spliceable, seam, text = 0, 0, nil, nil
while ARGV[at] do
  local words = tonumber(ARGV[at])
  ARGV[at + 2] = KEYS[tonumber(ARGV[at + 2])]
  if number >= vital and not removed then
    redis.call('HDEL', KEYS[1], ARGV[1])
    removed = true
  end
  if skipped > 0 then
    skipped = skipped - 1
  elseif ARGV[at + 1] == 'ONCE' or ARGV[at + 1] == 'JOIN' or ARGV[at + 1] == 'UNLESS' then
    skipped, spliceable, seam, text = judged(at)
  else
    if text and spliceable > 0 then
      spliceable = spliceable - 1
      for word = at + 3, at + words do ARGV[word] = spliced(ARGV[word], seam, text) end
    end
    if number < vital then
      redis.call(unpack(ARGV, at + 1, at + words))
    else
      redis.pcall(unpack(ARGV, at + 1, at + words))
    end
  end
  number = number + 1
  at = at + words + 1
end
if not removed then redis.call('HDEL', KEYS[1], ARGV[1]) end
return 1
