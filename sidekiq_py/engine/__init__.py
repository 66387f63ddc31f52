"""
The worker engine of one process: launcher, managers, processors, poller, heartbeat.

May import `running` and below; neither `api` nor `testing`.
"""
