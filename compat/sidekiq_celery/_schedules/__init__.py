"""Schedules, a kind a file. Programs import them from `sidekiq_celery.schedules`."""
