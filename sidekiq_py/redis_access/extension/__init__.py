"""What features above Sidekiq's build on: locks, turns, rates, revokes. May import `job_path` and `connection`."""
