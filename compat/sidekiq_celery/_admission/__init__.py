"""Whether a task may start now: revokes and rate limits."""
