"""A shop that uses Celery."""
