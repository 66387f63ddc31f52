"""What beat is made of. Programs import it from `sidekiq_celery.beat`."""
