"""A job's path through Redis: push, in flight, promotion, recovery. May import `connection`."""
