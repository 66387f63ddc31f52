"""A shop that works with Celery."""
