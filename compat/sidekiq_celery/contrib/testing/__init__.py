"""
Apps and workers for the tests of programs, as in `celery.contrib.testing`. They use real queues, never imitations.

The broker `memory://` is a private Redis here (`private_broker`). Importing `app` or `worker` is enough to get it.
"""
