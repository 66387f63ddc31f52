-- Reads a step of a workflow and those behind it, as far as they are small.
--
-- KEYS[1] hash  the steps: id -> JSON that ends in ,"n":{"id":"<workflow>","next":"<id of the step behind>"}} or ,"n":null}
-- ARGV[1] id of the first   ARGV[2] how many at most   ARGV[3] bytes after which no more are read
--
-- Reply: {JSON of the first, id, JSON of the one behind it, ...}; empty if there is no such step.

local flow = string.match(KEYS[1], '[^:]*$')
local text = redis.call('HGET', KEYS[1], ARGV[1])
if not text then return {} end
local reply, bytes = {text}, #text
for _ = 2, tonumber(ARGV[2]) do
  -- Of a step that goes on in another workflow nothing is here.
  local there, id = string.match(text, ',"n":{"id":"([^"]*)","next":"([^"]*)"}}$')
  text = there == flow and redis.call('HGET', KEYS[1], id)
  if not text then break end
  bytes = bytes + #text
  if bytes > tonumber(ARGV[3]) then break end
  reply[#reply + 1] = id
  reply[#reply + 1] = text
end
return reply
