-- Why this user may not remove anything from the sorted set, told before a job stands in two places; Redis knows since 7.0. A
-- ZREM of nothing would tell, too, but a script that has written is not refused for want of memory any more.
local function forbids_zrem()
  if not redis.acl_check_cmd or redis.acl_check_cmd('ZREM', KEYS[1], '') then return nil end
  return 'NOPERM this user may not use ZREM on ' .. KEYS[1]
end
