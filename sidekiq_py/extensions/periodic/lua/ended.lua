-- CRON_ENDED <own hash> <jid> <how> <now> <seconds>
--
-- Records how a run ended, and lets the next one start if runs must not overlap. A history that cannot be written does not keep a job
-- from being settled.
{
  run = function(key, words)
    if redis.pcall('HGET', key, 'running') == words[1] then redis.call('HDEL', key, 'running', 'running_since') end
    local runs = (string.gsub(key, 'sidekiq_py:cron:', 'sidekiq_py:cron_runs:', 1))
    for at, row in ipairs(redis.pcall('LRANGE', runs, 0, 99)) do
      if string.sub(row, 1, #words[1] + 1) == words[1] .. ' ' then
        local jid, tick, pushed = string.match(row, '^(%S+) (%S+) (%S+)')
        redis.pcall('LSET', runs, at - 1, table.concat({jid, tick, pushed, words[2], words[3], words[4]}, ' '))
        return
      end
    end
  end,
}
