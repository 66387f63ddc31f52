"""What worker processes say of themselves. May import `job_path` and `connection`."""
