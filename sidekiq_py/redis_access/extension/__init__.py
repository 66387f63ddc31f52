"""What workers are told along with jobs, for features above Sidekiq's. May import `job_path` and `connection`."""
