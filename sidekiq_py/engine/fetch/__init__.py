"""Fetching jobs from queues for processors, and settling them in Redis. May import `ownership` and `report`."""
