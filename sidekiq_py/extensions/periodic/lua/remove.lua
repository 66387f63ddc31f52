-- CRON_REMOVE <own hash> <set> <job>
--
-- Deletes a job as the gem's `destroy` does, and Python's own records of it.
{
  run = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    local job = prefix .. words[2]
    redis.call('SREM', prefix .. words[1], words[2])
    redis.call('DEL', job .. ':enqueued', job .. ':jid_history', job, key, prefix .. 'sidekiq_py:cron_runs:' .. words[2])
    redis.call('SREM', prefix .. 'sidekiq_py:cron_declared', words[2])
    -- Without the counter, the change is noticed within a few seconds.
    redis.pcall('INCRBY', prefix .. 'sidekiq_py:cron_changes', 1)
  end,
}
