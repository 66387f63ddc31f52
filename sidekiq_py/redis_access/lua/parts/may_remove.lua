-- Removes nothing. A script that has written is not refused for want of memory any more.
redis.call('HDEL', KEYS[1], '')
-- A user who may not use LREM is told before a job stands in two places. To others it is refused for the type of the key.
local refused = redis.pcall('LREM', KEYS[1], 1, '')
if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end
