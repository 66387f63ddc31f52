"""Background threads that run beside the jobs: poller, heartbeat, and helpers. May import `run` and below."""
