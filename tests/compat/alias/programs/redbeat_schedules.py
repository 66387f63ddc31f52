"""celery-redbeat: its scheduler sends from settings and from what it has in Redis."""

import sys
import threading
import time

from celery import Celery
from celery.beat import Service
from celery.result import AsyncResult
from celery.schedules import schedule
from redbeat import RedBeatSchedulerEntry

URL = sys.argv[1]
app = Celery("shop", broker=URL, backend=URL)
app.conf.update(
    redbeat_redis_url=URL,
    beat_scheduler="redbeat.RedBeatScheduler",
    beat_max_loop_interval=1,
    beat_schedule={"every": {"task": "shop.add", "schedule": 0.2, "args": (1, 2)}},
)
RedBeatSchedulerEntry("kept", "shop.add", schedule(0.2), args=[5, 6], app=app).save()

service = Service(app=app, scheduler_cls=app.conf.beat_scheduler)
thread = threading.Thread(target=service.start, daemon=True)
thread.start()
client = app.connection().default_channel.client
deadline = time.monotonic() + 60
wanted = {b'"args":[1,2]', b'"args":[5,6]'}
while wanted and time.monotonic() < deadline:
    jobs = client.lrange("queue:celery", 0, -1)
    wanted = {text for text in wanted if not any(text in job for job in jobs)}
    time.sleep(0.05)
assert not wanted, wanted
service.stop()
thread.join(60)
assert isinstance(app.AsyncResult("x"), AsyncResult)
print("done")
