"""
Status and progress of jobs, on the keys of the gem sidekiq-status.

`extension` has the hooks, `progress` writes the status of running jobs, `status` reads and changes it from outside, and
`keys` describes the data in Redis. Both languages read and write the same hash, so the gem's page shows Python's jobs
and can stop them.
"""

from sidekiq_py.extensions.status.extension import StatusExtension

__all__ = ["StatusExtension"]
