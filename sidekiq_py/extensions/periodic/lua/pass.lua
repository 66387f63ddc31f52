-- CRON_PASS <own hash> <tick> <tick as text> <now> <why>
--
-- Skips a tick: neither language will fire it any more.
{
  run = function(key, words)
    local job = (string.gsub(key, 'sidekiq_py:cron:', '', 1))
    if (tonumber(redis.call('HGET', key, 'fired') or 0) or 0) >= tonumber(words[1]) then return end
    -- First, because a step that is refused here is repeated as long as the tick does not count as fired.
    redis.call('ZADD', job .. ':enqueued', 'NX', words[1], words[2])
    redis.call('HSET', key, 'fired', words[1])
    redis.call('HDEL', key, 'p:' .. words[1])
    local runs = (string.gsub(key, 'sidekiq_py:cron:', 'sidekiq_py:cron_runs:', 1))
    redis.pcall('LPUSH', runs, '- ' .. words[1] .. ' ' .. words[3] .. ' ' .. words[4])
    redis.pcall('LTRIM', runs, 0, 99)
  end,
}
