-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory.
redis.call('HDEL', KEYS[1], '')
-- Stops a user who may not use LREM before a job is in two places. For other users it fails because of the key's type.
local refused = redis.pcall('LREM', KEYS[1], 1, '')
if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end
