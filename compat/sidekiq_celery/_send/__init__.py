"""From a call to a job in Redis."""
