-- CRON_PASS <own hash> <tick> <tick as text> <now> <why>
--
-- Skips a tick: neither language will fire it any more.
{
  run = function(key, words)
    local job = (string.gsub(key, 'sidekiq_py:cron:', '', 1))
    if (tonumber(redis.call('HGET', key, 'fired') or 0) or 0) >= tonumber(words[1]) then return end
    redis.call('HSET', key, 'fired', words[1])
    redis.call('HDEL', key, 'p:' .. words[1])
    redis.call('ZADD', job .. ':enqueued', 'NX', words[1], words[2])
    local runs = (string.gsub(key, 'sidekiq_py:cron:', 'sidekiq_py:cron_runs:', 1))
    redis.call('LPUSH', runs, '- ' .. words[1] .. ' ' .. words[3] .. ' ' .. words[4])
    redis.call('LTRIM', runs, 0, 99)
  end,
}
