-- Lets a run start if its rate allows, or gives it an appointment. Uses the clock of Redis.
--
-- KEYS[1] hash  `next`: when the next start is due; `line`: the first free appointment; `late`: the first free appointment
--   for runs that missed theirs; all in epoch us
-- ARGV[1] us from one start to the next   ARGV[2] slack, us: how far back starts are made up that were left unused by runs
--   that were late for their appointments
-- ARGV[3] patience, us: how long the caller waits for its start   ARGV[4] "1": the run has an appointment
--
-- Reply: {1, us to wait}: the run starts; {0, epoch us}: its appointment.
--
-- A run without an appointment queues up behind those that have one. An appointment is not a guarantee: if starts were held
-- up and too many runs come at once, some get new appointments, ahead of the runs that wait behind them.

local interval, slack, patience = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local is_expected = ARGV[4] == '1'
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local state = redis.call('HMGET', KEYS[1], 'next', 'line', 'late')
-- The next start is never further away than that, apart from a second for rounding. So the clock was set back, and the appointments
-- that were made before would block the task for as long.
if (tonumber(state[1] or 0) or 0) > now + patience + interval + 1000000 then
  redis.call('DEL', KEYS[1])
  state = {}
end
-- Its time to live is written again below. But once a script has written, Redis does not refuse its writes for lack of memory, and
-- what drains a full Redis must not do so at any rate.
redis.call('EXPIRE', KEYS[1], 1)
local due = math.max(tonumber(state[1] or 0) or 0, is_expected and now - slack or now)
local line, late = tonumber(state[2] or 0) or 0, tonumber(state[3] or 0) or 0

local function keep(field, value)
  redis.call('HSET', KEYS[1], field, string.format('%.0f', value))
  -- A start still counts while it lies within the slack.
  local last = math.max(value, line, late) + slack
  redis.call('EXPIRE', KEYS[1], string.format('%.0f', math.ceil((last - now) / 1000000)))
end

if due <= now + patience and (is_expected or line <= now + patience) then
  keep('next', due + interval)
  return {1, string.format('%.0f', math.max(0, due - now))}
end
local field = is_expected and 'late' or 'line'
local at = math.max(due, is_expected and late or line)
keep(field, at + interval)
return {0, string.format('%.0f', at)}
