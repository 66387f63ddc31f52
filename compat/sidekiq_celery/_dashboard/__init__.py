"""
Celery's pages in the dashboard: tasks and their results, workers, rate limits, workflows.

`pages` answers requests; `side` provides an app for the Redis that is shown; `workers` queries the workers in the
background. They read and act through `stored_results`, `workflow_state` and `app.control`, which programs can also use.
"""
