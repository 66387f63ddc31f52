"""
The parts for custom pushes: a program's settings for pushes, and the client that a push goes to.

Most programs need only `sidekiq.Client` or the hooks of an extension. An extension that builds payloads itself and
sends them with its own commands, as `sidekiq_celery` does, must follow the same settings as every other push. In
`program` these names are public: `is_plain`, `interceptor`, `after_commit`, `default_job_options`, and the methods
`wants_pushes` and `explained` of `extensions`. `waits_for_commit` delays a push while a transaction is open, and
`for_later` prepares one that the caller delays. `advised` adds to a refusal what to do if Redis is full or its user
lacks a right. Importing this module does not load the engine. This module is public and its names are stable.
"""

from sidekiq_py import program
from sidekiq_py.client.outgoing import waits_for_commit
from sidekiq_py.client.sync_client import Client, current, for_job, for_later, for_pool
from sidekiq_py.redis_access.job_path.push import advised

__all__ = ("Client", "advised", "current", "for_job", "for_later", "for_pool", "program", "waits_for_commit")
