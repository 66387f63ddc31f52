"""Stands in for Celery's pool of processes, because programs set its time limit for a child that starts."""

PROC_ALIVE_TIMEOUT = 4.0
"""Without effect, as the setting `worker_proc_alive_timeout`."""
