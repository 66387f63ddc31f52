-- The verbs, by name. A script creates its tables and functions anew each time it runs, so a verb is only created when it is needed:
-- all those of sidekiq_py take Redis 6 µs.
local VERBS = {}
local function new_verb(name)
--@verbs
  return false
end
setmetatable(VERBS, {__index = function(known, name)
  local verb = new_verb(name)
  known[name] = verb
  return verb
end})
