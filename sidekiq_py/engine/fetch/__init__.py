"""From a queue to a processor, and a job's end back to Redis. May import `ownership` and `report`."""
