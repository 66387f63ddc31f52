"""Tools of Celery's users, each with the real Celery and under the alias, and what they report of the same tasks."""
