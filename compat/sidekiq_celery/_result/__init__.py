"""The parts of `sidekiq_celery.result`. Importing them imports no backend; promises come with the first `then`."""
