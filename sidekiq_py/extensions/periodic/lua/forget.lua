-- CRON_FORGET <own hash> <job>
--
-- Deletes Python's own records of a job that Ruby has deleted.
{
  run = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    -- It may have been saved again meanwhile.
    if redis.call('EXISTS', prefix .. words[1]) == 1 then return end
    redis.call('DEL', key, prefix .. 'sidekiq_py:cron_runs:' .. words[1])
    redis.call('SREM', prefix .. 'sidekiq_py:cron_declared', words[1])
  end,
}
