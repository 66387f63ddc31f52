-- CRON_SAVE <own hash> <set> <job> <now> <previous tick> <version of ours> <n> <n own fields and values> <the gem's fields and values>
--
-- Writes a job as the gem's `save` does, and Python's own records of it. The status and last_enqueue_time of an existing job stay as
-- they are, because it may have been disabled.
{
  run = function(key, words)
    local prefix = (string.gsub(key, 'sidekiq_py:cron:.*$', ''))
    local set, job, now, previous = prefix .. words[1], prefix .. words[2], words[3], words[4]
    local is_new = redis.call('EXISTS', job) == 0
    redis.call('SADD', set, words[2])
    local count = tonumber(words[6])
    for at = 7 + count, #words, 2 do
      local name = words[at]
      if is_new or (name ~= 'status' and name ~= 'last_enqueue_time') or redis.call('HEXISTS', job, name) == 0 then
        redis.call('HSET', job, name, words[at + 1])
      end
    end
    -- Otherwise it would fire at once, for the last tick before it was declared.
    if previous ~= '' and redis.call('EXISTS', job .. ':enqueued') == 0 then
      redis.call('ZADD', job .. ':enqueued', now, previous)
    end
    local cron = redis.call('HGET', key, 'cron')
    redis.call('HSET', key, 'v', words[5], unpack(words, 7, 6 + count))
    if cron ~= redis.call('HGET', key, 'cron') or redis.call('HEXISTS', key, 'since') == 0 then
      redis.call('HSET', key, 'since', now)
    end
    redis.call('SADD', prefix .. 'sidekiq_py:cron_declared', words[2])
    -- Without the counter, the change is noticed within a few seconds.
    redis.pcall('INCRBY', prefix .. 'sidekiq_py:cron_changes', 1)
  end,
}
