-- CRON_CLAIM <own hash> <the same job's key in the other layout, or empty> <tick> <tick as text> <cron text> <now>
--            <now as last_enqueue_time> <jid> <line for jid_history>
--
-- Claims a tick that is still free, and keeps the gem's records. The pushes that follow are part of the same step, so no process can
-- claim a tick and die before its job is pushed. A tick counts as fired by `fired`, which only moves forward, and by the gem's
-- `:enqueued`, which shows Ruby's ticks; a tick that Python has planted there belongs to Python.
--
-- Refused with CRONTAKEN: it was already fired. CRONOFF: the job is disabled, or has changed since it was read. CRONRUNNING: its
-- last run is still going, and its runs must not overlap.
{
  look = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    local job, tick, member = (string.gsub(key, 'sidekiq_py:cron:', '', 1)), tonumber(words[2]), words[3]
    -- Redis does not undo the claim if a later command is refused; the tick would be lost. Redis can tell since 7.0.
    local runs = (string.gsub(key, 'sidekiq_py:cron:', 'sidekiq_py:cron_runs:', 1))
    local needed = {
      {'HSET', key, '', ''}, {'HDEL', key, ''}, {'HSET', job, '', ''}, {'EXISTS', job}, {'ZADD', job .. ':enqueued', 0, ''},
      {'ZREMRANGEBYSCORE', job .. ':enqueued', 0, 0}, {'LPUSH', job .. ':jid_history', ''}, {'LTRIM', job .. ':jid_history', 0, 0},
      {'LPUSH', runs, ''}, {'LTRIM', runs, 0, 0},
    }
    for _, command in ipairs(redis.acl_check_cmd and needed or {}) do
      if not redis.acl_check_cmd(unpack(command)) then
        return 'NOPERM this user may not use ' .. command[1] .. ' on ' .. command[2]
      end
    end
    if redis.call('HGET', job, 'status') ~= 'enabled' then return 'CRONOFF it is disabled' end
    if redis.call('HGET', job, 'cron') ~= words[4] then return 'CRONOFF its text has changed' end
    if (tonumber(redis.call('HGET', key, 'fired') or 0) or 0) >= tick then return 'CRONTAKEN by Python' end
    if redis.call('HEXISTS', key, 'p:' .. words[2]) == 0 then
      if redis.call('ZSCORE', job .. ':enqueued', member) then return 'CRONTAKEN by Ruby' end
      if words[1] ~= '' and redis.call('ZSCORE', prefix .. words[1] .. ':enqueued', member) then
        return 'CRONTAKEN by Ruby'
      end
    end
    if redis.call('HGET', key, 'overlap') == 'skip' then
      local running = redis.call('HGET', key, 'running')
      if running and running ~= '' then return 'CRONRUNNING ' .. running end
    end
  end,
  run = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    local job, tick, member, now, jid = (string.gsub(key, 'sidekiq_py:cron:', '', 1)), words[2], words[3], tonumber(words[5]), words[7]
    redis.call('HSET', key, 'fired', tick)
    redis.call('HDEL', key, 'p:' .. tick)
    if redis.call('HGET', key, 'overlap') == 'skip' then
      redis.call('HSET', key, 'running', jid, 'running_since', words[5])
    end
    redis.call('ZADD', job .. ':enqueued', tick, member)
    redis.call('ZREMRANGEBYSCORE', job .. ':enqueued', 0, string.format('(%.6f', now - 86400))
    if words[1] ~= '' and redis.call('EXISTS', prefix .. words[1]) == 1 then
      redis.call('ZADD', prefix .. words[1] .. ':enqueued', tick, member)
    end
    -- Both begin with date and time in UTC. A clock that was ahead, or a push by hand, may have left a later time.
    local last = redis.call('HGET', job, 'last_enqueue_time') or ''
    if string.sub(last, 1, 19) <= string.sub(words[6], 1, 19) then
      redis.call('HSET', job, 'last_enqueue_time', words[6])
    end
    -- Histories that another program has overwritten do not keep a tick from firing.
    redis.pcall('LPUSH', job .. ':jid_history', words[8])
    redis.pcall('LTRIM', job .. ':jid_history', 0, 9)
    local runs = (string.gsub(key, 'sidekiq_py:cron:', 'sidekiq_py:cron_runs:', 1))
    redis.pcall('LPUSH', runs, jid .. ' ' .. tick .. ' ' .. words[5] .. ' pushed')
    redis.pcall('LTRIM', runs, 0, 99)
  end,
}
