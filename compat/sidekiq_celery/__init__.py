"""
Celery's names on Sidekiq's queues: the next milestone. There is nothing in here yet.

The plan is that moving a project over is `from celery import …` → `from sidekiq_celery import …`, with Celery's own
module names below it. The package is already part of the wheel, so that its name is settled. Until then a Celery
project can use `sidekiq_py` beside Celery: `@sidekiq_py.job` for work that moves over, Celery for the rest.

May import `sidekiq_py`; nothing in `sidekiq_py` imports this.
"""
