"""What worker processes publish about themselves. May import `job_path` and `connection`."""
