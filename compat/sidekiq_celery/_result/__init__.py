"""The parts of `sidekiq_celery.result`. They import no backend; promises are imported by the first `then`."""
