
-- Runs one step on its own.
-- KEYS[1] hash  the batch   ARGV[1] the step   ARGV[2..] its arguments
-- Reply: the step's return value, or 1. Error: BATCHGONE, BATCHDONE, BATCHCLOSED, BATCHROLLEDBACK or WRONGTYPE; nothing was written.
local step, words = ARGV[1], {unpack(ARGV, 2)}
local batch = batch_of(KEYS[1])
local why = look(step, batch, words)
if why then return redis.error_reply(why) end
-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory, as it shall only for steps
-- that lead to pushes.
if step ~= 'open' and step ~= 'reserve' and step ~= 'may_push' then redis.pcall('HDEL', batch.key, '') end
return run(step, batch, words)
