"""
Status and progress of jobs, on the keys of the gem sidekiq-status.

`extension` has the hooks, `progress` what a running job writes, `status` what others read and ask, `keys` what stands
in Redis. Both languages read and write the same hash, so the gem's page shows Python's jobs and stops them.
"""

from sidekiq_py.extensions.status.extension import StatusExtension

__all__ = ["StatusExtension"]
