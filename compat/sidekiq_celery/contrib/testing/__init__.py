"""
Apps and workers for the tests of programs, as in `celery.contrib.testing`; on real queues, never on imitations.

`memory://` as a broker is a private Redis here (`private_broker`), which whoever imports `app` or `worker` gets.
"""
