-- Removes nothing. But once a script has written, Redis does not refuse its writes for lack of memory. And it stops a user who may not
-- use HDEL or LREM before a job is in two places. For other users, LREM fails because of the key's type; so does HDEL if another
-- program has overwritten the key, which must not keep the jobs in inboxes here.
for _, command in ipairs({{'HDEL', KEYS[1], ''}, {'LREM', KEYS[1], 1, ''}}) do
  local refused = redis.pcall(unpack(command))
  if type(refused) == 'table' and string.sub(refused.err, 1, 9) ~= 'WRONGTYPE' then return refused end
end
