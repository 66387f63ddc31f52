-- Moves single jobs from queues into an owner's inboxes.
--
-- KEYS[1], KEYS[3], ... lists: the queues   KEYS[2], KEYS[4], ... lists: the inbox of each
-- ARGV[1] how many queues   ARGV[2..] for each job, the numbers of the queues, from 0, in the order to try them
--
-- Reply: {number of the queue, the job's bytes, ...}. After an error, as for a queue whose key is not a list, the jobs that were
-- already moved are in their inboxes, where their owner finds them.

local queues, reply = tonumber(ARGV[1]), {}
for first = 2, #ARGV, queues do
  local job = false
  for at = first, first + queues - 1 do
    local number = tonumber(ARGV[at])
    job = redis.call('LMOVE', KEYS[2 * number + 1], KEYS[2 * number + 2], 'RIGHT', 'LEFT')
    if job then
      reply[#reply + 1] = number
      reply[#reply + 1] = job
      break
    end
  end
  if not job then break end
end
return reply
