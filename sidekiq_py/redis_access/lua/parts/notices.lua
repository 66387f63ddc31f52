local notices = {redis.call('GET', KEYS[8]) or ''}

-- Notes the ids in a job's text that are revoked. An argument may have an id, too, so the receiver checks which one it is.
local function note_revoked(job)
  local at = 1
  while true do
    local from, to = string.find(job, '"jid"', at, true)
    if not from then return end
    local id = string.match(job, '^%s*:%s*"([^"]*)"', to + 1)
    if id and redis.call('ZSCORE', KEYS[7], id) then notices[#notices + 1] = id end
    at = to + 1
  end
end
