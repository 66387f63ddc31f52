-- The error if this user may not remove members of the sorted set. Check it before a job is in two places; Redis can tell since
-- 7.0. A ZREM of nothing would tell, too, but once a script has written, Redis does not refuse its writes for lack of memory.
local function forbids_zrem()
  if not redis.acl_check_cmd or redis.acl_check_cmd('ZREM', KEYS[1], '') then return nil end
  return 'NOPERM this user may not use ZREM on ' .. KEYS[1]
end
