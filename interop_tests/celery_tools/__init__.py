"""Compares what tools for Celery report about the same tasks, with the real Celery and under the alias."""
