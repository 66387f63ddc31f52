-- CRON_STATUS <own hash> <enabled|disabled> <reason> <now>
--
-- Ticks that passed while it was disabled are never caught up.
{
  look = function(key, words)
    local job = (string.gsub(key, 'sidekiq_py:cron:', '', 1))
    if redis.call('HEXISTS', job, 'name') == 0 then return 'CRONGONE there is no such periodic job' end
  end,
  run = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    local job = (string.gsub(key, 'sidekiq_py:cron:', '', 1))
    if words[1] == 'enabled' and redis.call('HGET', job, 'status') ~= 'enabled' then
      redis.call('HSET', key, 'since', words[3])
    end
    redis.call('HSET', job, 'status', words[1])
    redis.call('HDEL', key, 'was_disabled', 'reason')
    if words[2] ~= '' then redis.call('HSET', key, 'reason', words[2]) end
    -- Without the counter, the change is noticed within a few seconds.
    redis.pcall('INCRBY', prefix .. 'sidekiq_py:cron_changes', 1)
  end,
}
