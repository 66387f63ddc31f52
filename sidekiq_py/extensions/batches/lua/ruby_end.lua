
-- Ends a member's run in a Ruby process.
-- KEYS[1] hash  the batch   KEYS[2] hash  the jobs that this process is running
-- ARGV[1] the job's field there   ARGV[2..] the arguments of `ends`
redis.call('HDEL', KEYS[2], ARGV[1])
local batch, words = batch_of(KEYS[1]), {unpack(ARGV, 2)}
local why = look('ends', batch, words)
if why then return redis.error_reply(why) end
return run('ends', batch, words)
