-- CRON_PLANT <own hash> (<tick> <tick as text>)...
--
-- Claims coming ticks, so that Ruby cannot fire them. A tick that is already there is not Python's.
{
  look = function(key)
    -- Without its mark, a tick that is planted would be taken for Ruby's.
    if redis.acl_check_cmd and not redis.acl_check_cmd('HSET', key, '', '') then
      return 'NOPERM this user may not use HSET on ' .. key
    end
  end,
  run = function(key, words)
    local job = (string.gsub(key, 'sidekiq_py:cron:', '', 1))
    if redis.call('EXISTS', job) == 0 then return end
    for at = 1, #words, 2 do
      if redis.call('ZADD', job .. ':enqueued', 'NX', words[at], words[at + 1]) == 1 then
        redis.call('HSET', key, 'p:' .. words[at], '1')
      end
    end
  end,
}
