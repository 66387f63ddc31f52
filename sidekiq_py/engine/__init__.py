"""
The worker engine of one process: launcher, managers, processors, poller, heartbeat.

May import the layers below it (import-linter's in pyproject.toml), but neither `api` nor `testing`.
"""
