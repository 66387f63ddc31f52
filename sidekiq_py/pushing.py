"""
Pushing by a way of one's own: what a program has set about pushes, and the client that one goes to.

`sidekiq.Client`, and hooks of an extension, do for most. An extension that makes payloads itself and sends them along
with commands of its own, as `sidekiq_celery` does, has to heed what every push heeds. Of `program` these names are
public: `is_plain`, `interceptor`, `after_commit`, `default_job_options`, and of `extensions` the methods `wants_pushes`
and `explained`. Loads no engine. Public: what is here stays.
"""

from sidekiq_py import program
from sidekiq_py.client.sync_client import Client, current, for_job

__all__ = ("Client", "current", "for_job", "program")
