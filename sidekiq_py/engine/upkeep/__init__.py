"""Threads beside the jobs: poller, heartbeat, and what they share. May import `run` and below."""
