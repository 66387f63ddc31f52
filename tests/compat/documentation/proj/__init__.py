"""The project that Celery's guides build up, page by page: `celery` holds the app, `tasks` its tasks."""
