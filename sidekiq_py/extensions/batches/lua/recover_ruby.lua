-- Pushes the jobs again that a Ruby process was running when it died, unless its heartbeat has come back.
--
-- KEYS[1] set   identities of Ruby processes   KEYS[2] hash  this process's <jid>/<n> -> <queue> LF <the job's bytes>
-- KEYS[3] hash  its heartbeat                  KEYS[4] set   queues
-- ARGV[1] its identity
--
-- Reply: the number of jobs pushed, and of entries that stay: those that another program has written, and jobs whose
-- queue's key has a wrong type or may not be used.
if redis.call('EXISTS', KEYS[3]) == 1 then return {0, 0} end
local prefix = string.sub(KEYS[4], 1, -7)
local pushed, left = 0, 0
local entries = redis.call('HGETALL', KEYS[2])
for at = 1, #entries, 2 do
  local queue, job = string.match(entries[at + 1], '^([^\n]*)\n(.*)$')
  local is_done = false
  if queue then
    -- A process that had time for it returned the job itself, and was killed before it removed the mark.
    local list = prefix .. 'queue:' .. queue
    local found = redis.pcall('LPOS', list, job)
    is_done = type(found) == 'number'
    if not found then
      is_done = type(redis.pcall('RPUSH', list, job)) == 'number'
      if is_done then
        redis.pcall('SADD', KEYS[4], queue)
        pushed = pushed + 1
      end
    end
  end
  if is_done then redis.call('HDEL', KEYS[2], entries[at]) else left = left + 1 end
end
if left == 0 then redis.call('SREM', KEYS[1], ARGV[1]) end
return {pushed, left}
