"""
The real Celery's side, run by a Python that has it: `python celery_side.py <broker> <results> <what> [<number>]`.

`calls` sends a call of each kind and prints the ids by kind as JSON, `ids` sends calls whose ids are no texts, `many`
so many calls of `note` one after the other, each of which is printed once it was sent, `work` runs a worker until it is
told to stop.
"""

import datetime
import json
import sys
import uuid

from celery import Celery, chain, chord, group
from kombu import Queue

broker, results, what, *rest = sys.argv[1:]
app = Celery("side", broker=broker, backend=results)
app.conf.accept_content = ["json", "pickle"]
app.conf.task_default_priority = 0
app.conf.broker_transport_options = {"data_folder_in": "queues", "data_folder_out": "queues"}
if broker.startswith("amqp"):
    app.conf.task_queues = [Queue("celery", queue_arguments={"x-max-priority": 10}), Queue("high")]
    app.conf.broker_transport_options = {"confirm_publish": True}


@app.task(name="side.note")
def note(*args, **kwargs):
    """Remembers its call in the results' Redis."""
    import redis

    client = redis.Redis.from_url(results)
    client.rpush("noted", json.dumps([list(args), kwargs], default=str))
    client.close()
    return args[0] if args else None


def calls():
    now = datetime.datetime.now(datetime.timezone.utc)  # noqa: UP017
    later = now + datetime.timedelta(hours=1)
    header = [note.s("part 1"), note.s("part 2")]
    sent = {
        "plain": note.delay("plain", 1, None),
        "kwargs": note.apply_async(("kwargs",), {"when": now, "é": "ü"}),
        "high": note.apply_async(("high",), queue="high"),
        "urgent": note.apply_async(("urgent",), priority=6),
        "later": note.apply_async(("later",), eta=later),
        "soon": note.apply_async(("soon",), countdown=0.01),
        "retried": note.apply_async(("retried",), eta=later, retries=2),
        "expired": note.apply_async(("expired",), expires=now - datetime.timedelta(hours=1)),
        "linked": note.apply_async(("linked",), link=note.s("link"), link_error=note.si("errback")),
        "headers": note.apply_async(("headers",), headers={"tenant": "a"}, shadow="shadow", time_limit=9),
        "chain": chain(note.s("first"), note.si("second"), note.si("third")).apply_async(),
        "grouped": group(note.s("member 1"), note.s("member 2")).apply_async(),
        "pickled": note.apply_async(("pickled", now), serializer="pickle"),
        "packed": note.apply_async(("packed",), compression="zlib", link=note.s("packed link")),
        "pickled_group": group(note.s("pickled member").set(serializer="pickle")).apply_async(),
        "nan": note.apply_async((float("nan"),)),
        "chord": chord(header)(note.s("body")),
    }
    old = Celery("old", broker=broker, backend=results)
    old.conf.task_protocol = 1
    old.conf.task_queues = app.conf.task_queues
    sent["protocol 1"] = old.send_task("side.note", ("protocol 1",), {"k": 1}, countdown=3600)
    sent["protocol 1 pickled"] = old.send_task("side.note", ("protocol 1 pickled",), serializer="pickle")
    print(json.dumps({kind: result.id for kind, result in sent.items()}), flush=True)


def ids():
    note.apply_async(("uuid",), task_id=uuid.UUID(int=5))
    note.apply_async(("numbers",), root_id=7, parent_id=8, correlation_id=9)
    # Celery's backends in Redis know no results with such an id.
    Celery("resultless", broker=broker).send_task("side.note", ("number",), task_id=5)
    print("{}", flush=True)


def many(count):
    for number in range(count):
        note.delay(number)
        print(number, flush=True)


if what == "calls":
    calls()
elif what == "ids":
    ids()
elif what == "many":
    many(int(rest[0]))
elif what == "work":
    app.worker_main(["worker", "-P", "solo", "-l", "WARNING", "-Q", "celery,high", "--without-gossip", *rest])
