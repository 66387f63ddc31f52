"""
Celery's pages of the dashboard: tasks and their results, workers, rate limits, workflows.

`pages` is what requests are answered by; `side` has an app for the Redis that is shown; `workers` asks the workers in
the background. They read and act through `stored_results`, `workflow_state` and `app.control`, as programs can.
"""
