"""Schedules, one kind per file. Programs import them from `sidekiq_celery.schedules`."""
