"""
One process at work: launcher, managers, processors, poller, heartbeat.

May import `running` and below; neither `api` nor `testing`.
"""
