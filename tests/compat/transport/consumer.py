"""
A consumer that is killed, or that forks: `python consumer.py <URL> hold|fork`.

`hold` takes two messages, says so, and waits to be killed. `fork` takes one, has a child close what it has inherited,
publish and consume by a connection of its own, and then acknowledges.
"""

import os
import sys
import time

import sidekiq_celery.transport  # noqa: F401 - registers the schemes
from kombu import Connection, Consumer, Queue
from kombu.simple import SimpleQueue

url, what = sys.argv[1:]
messages = []
connection = Connection(url)
Consumer(connection, [Queue("celery")], on_message=messages.append, prefetch_count=2).consume()


def take(count):
    while len(messages) < count:
        connection.drain_events(timeout=60)


def in_child():
    connection.release()
    with Connection(url) as own, SimpleQueue(own, "of_the_child") as queue:
        queue.put("hello")
        message = queue.get(timeout=60)
        message.ack()
        assert message.payload == "hello"


def fork():
    take(1)
    if os.fork() == 0:
        status = 1
        try:
            in_child()
            status = 0
        finally:
            os._exit(status)
    _, status = os.wait()
    assert status == 0
    messages[0].ack()
    print("settled", flush=True)
    # It still hears of what comes.
    take(2)
    messages[1].ack()
    connection.release()


if what == "hold":
    take(2)
    print("holding", flush=True)
    time.sleep(600)
else:
    fork()
