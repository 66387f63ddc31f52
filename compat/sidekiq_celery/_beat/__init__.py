"""The parts of beat. Programs import them from `sidekiq_celery.beat`."""
