-- Moves a job that a plain move has just put into an inbox to the owner's in-flight hash, as a fetch would have, or puts
-- it back in its queue. Called if anything is paused, suspect or revoked, or if the owner's lease is missing. A job of a
-- paused queue stays in the inbox, so that the caller can put all its jobs of that queue back together, in their order.
--
-- KEYS[1] hash  the owner's in-flight jobs   KEYS[2] hash  the owners   KEYS[3] list  the inbox
-- KEYS[4] list  the queue   KEYS[5] hash  suspects   KEYS[6] set  names of paused queues
-- KEYS[7] zset  ids of revoked jobs   KEYS[8] string  the number of the notices
-- ARGV[1] owner   ARGV[2] "<batch>.<n>"   ARGV[3] the queue's name
-- ARGV[4] the job's bytes
--
-- Reply: {field, the job's bytes, notices}; false if the job was no longer there or went back; or PAUSED. For the notices,
-- see fetch.lua.

local job = ARGV[4]
if not redis.call('LPOS', KEYS[3], job) then return false end

--@part may_remove

if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then
  redis.call('RPUSH', KEYS[4], job)
  redis.call('LREM', KEYS[3], 1, job)
  return false
end

--@part read

if read('SISMEMBER', KEYS[6], ARGV[3]) == 1 then return 'PAUSED' end

local mark = ':'
if redis.call('EXISTS', KEYS[5]) == 1 then
  local deaths = read('HGET', KEYS[5], redis.sha1hex(job))
  if deaths then
    if string.sub(deaths, 1, 2) ~= '0:' then
      -- It may have to wait until this process has no other such job, which only the fetch knows.
      redis.call('LPUSH', KEYS[4], job)
      redis.call('LREM', KEYS[3], 1, job)
      return false
    end
    mark = '!'
  end
end

--@part notices

if redis.call('EXISTS', KEYS[7]) == 1 then note_revoked(job) end

local field = ARGV[2] .. mark .. ARGV[3]
redis.call('HSET', KEYS[1], field, job)
redis.call('LREM', KEYS[3], 1, job)
return {field, job, notices}
