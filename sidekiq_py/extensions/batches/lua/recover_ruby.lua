-- Pushes the jobs again that a Ruby process was running when it died, unless its heartbeat has come back.
--
-- KEYS[1] set   identities of Ruby processes   KEYS[2] hash  this process's <jid>/<n> -> <queue> LF <the job's bytes>
-- KEYS[3] hash  its heartbeat                  KEYS[4] set   queues
-- ARGV[1] its identity
--
-- Reply: the number of jobs pushed.
if redis.call('EXISTS', KEYS[3]) == 1 then return 0 end
local prefix = string.sub(KEYS[4], 1, -7)
local pushed = 0
for _, text in ipairs(redis.call('HVALS', KEYS[2])) do
  local queue, job = string.match(text, '^([^\n]*)\n(.*)$')
  -- A process that had time for it returned the job itself, and was killed before it removed the mark.
  local list = prefix .. 'queue:' .. queue
  if redis.call('TYPE', list).ok ~= 'list' or not redis.call('LPOS', list, job) then
    redis.call('SADD', KEYS[4], queue)
    redis.call('RPUSH', list, job)
    pushed = pushed + 1
  end
end
redis.call('DEL', KEYS[2])
redis.call('SREM', KEYS[1], ARGV[1])
return pushed
