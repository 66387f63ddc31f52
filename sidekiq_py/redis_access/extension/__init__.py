"""Notices that workers receive with jobs, for features beyond Sidekiq's. May import `job_path` and `connection`."""
