-- The reply to a command that reads; nil if its key has the wrong type. Such a key holds no jobs and names no paused queue and no
-- suspect, and it must not keep all jobs from running. Other errors, as for a user who may not read the key, end the script.
local function read(...)
  local reply = redis.pcall(...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if string.sub(reply.err, 1, 9) == 'WRONGTYPE' then return nil end
  return redis.call(...)
end
