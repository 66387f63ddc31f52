"""A job's way through Redis: pushed, in flight, promoted, recovered. May import `connection`."""
