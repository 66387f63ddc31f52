"""The app."""

import os

from sidekiq_celery import Celery

URL = os.environ["REDIS_URL"]

app = Celery(
    "proj",
    broker=URL,
    backend=URL,
    include=[f"tests.compat.documentation.proj.{name}" for name in ("tasks", "commands")],
)
app.conf.update(result_expires=3600, result_extended=True, task_allow_error_cb_on_chord_header=True)

if __name__ == "__main__":
    app.start()
