"""Random canvases, each generated from a number, the same on both sides; their tasks note how they were called."""

import json
import os
import random
import time
from typing import Any

import redis
import sides
from celery import Celery, chord, group

DEPTH = 4
QUIET_SECONDS = 8

app = Celery("canvases", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])
app.conf.update(broker_connection_retry_on_startup=True, result_extended=True)
notes = redis.Redis.from_url(os.environ["REDIS_URL"], db=5)


def note(kind: str, key: str, about: Any) -> None:
    notes.rpush(f"log:{key.partition('.')[0]}", json.dumps([kind, key, *about]))


def note_run(kind: str, task: Any, key: str, args: Any) -> None:
    request = task.request
    lineage = (request.id, request.parent_id, request.root_id)
    place = (request.group is not None, request.group_index, request.replaced_task_nesting or 0)
    note(kind, key, (args, *lineage, *place))


@app.task(name="step", bind=True)
def step(self, *args, k):
    note_run("step", self, k, args)
    # The result shows where it came from, and does not grow forever.
    return k if not args or len(json.dumps(args)) > 300 else [k, *args]


@app.task(name="fails", bind=True)
def fails(self, *args, k):
    note_run("fails", self, k, args)
    raise ValueError(k)


@app.task(name="replaced", bind=True)
def replaced(self, *args, k):
    note_run("replaced", self, k, args)
    raise self.replace(step.si(k=f"{k}R"))


@app.task(name="replaced_by_group", bind=True)
def replaced_by_group(self, *args, k):
    note_run("replaced_by_group", self, k, args)
    raise self.replace(group(step.si(k=f"{k}R1"), step.si(k=f"{k}R2")))


@app.task(name="adds", bind=True)
def adds(self, *args, k):
    note_run("adds", self, k, args)
    if self.request.chord:
        self.add_to_chord(step.si(k=f"{k}A"))
    return k


@app.task(name="told")
def told(request, exc, traceback, k=None):
    note("told", k, ([type(exc).__name__], request.id, None, request.root_id, bool(request.group), None, 0))


KINDS = {"step": 20, "fails": 1, "replaced": 1.2, "replaced_by_group": 0.6, "adds": 0.8}
TASKS = {"step": step, "fails": fails, "replaced": replaced, "replaced_by_group": replaced_by_group, "adds": adds}


class Maker:
    """Creates the canvas for a number."""

    def __init__(self, number: int, seed: int) -> None:
        self.draw = random.Random(seed * 100_003 + number)
        self.number = number
        self.count = 0
        self.text = ""

    def key(self) -> str:
        self.count += 1
        return f"c{self.number}.{self.count}"

    def leaf(self, in_header: bool) -> Any:
        weights = {kind: weight for kind, weight in KINDS.items() if in_header or kind != "adds"}
        kind = self.draw.choices(list(weights), list(weights.values()))[0]
        make = TASKS[kind].si if self.draw.random() < 0.2 else TASKS[kind].s
        key = self.key()
        self.text += f"{kind}{self.count}{'i' if make == TASKS[kind].si else ''}"
        sig = make(k=key)
        if self.draw.random() < 0.12:
            self.text += "~"
            sig.link(step.s(k=self.key()))
        return self.with_errback(sig, 0.15)

    def with_errback(self, sig: Any, chance: float) -> Any:
        if self.draw.random() < chance:
            self.text += "!"
            sig.link_error(told.s(k=self.key()))
        return sig

    def several(self, depth: int, in_header: bool, least: int, between: str) -> list[Any]:
        made = []
        for number in range(self.draw.randint(least, 3)):
            self.text += between if number else ""
            made.append(self.make(depth - 1, in_header))
        return made

    def make(self, depth: int = DEPTH, in_header: bool = False) -> Any:
        kind = self.draw.choices(["leaf", "chain", "group", "chord"], [1, 3, 2, 2.5])[0] if depth else "leaf"
        if kind == "leaf":
            return self.leaf(in_header)
        self.text += {"chain": "(", "group": "g(", "chord": "C("}[kind]
        if kind == "chain":
            first, *others = self.several(depth, in_header, 2, " | ")
            for other in others:
                first |= other
            made = first
        elif kind == "group":
            made = group(self.several(depth, in_header, 1, ", "))
        else:
            header = self.several(depth, True, 1, ", ")
            self.text += " ; "
            made = chord(header, self.make(depth - 1, in_header))
        self.text += ")"
        return self.with_errback(made, 0.1)


def ended(result: Any) -> Any:
    if hasattr(result, "results"):
        return [ended(one) for one in result.results]
    if result is None:
        return None
    state = result.state
    if state != "SUCCESS":
        return [state, type(result.result).__name__]
    return [state, ended(result.result) if hasattr(result.result, "results") else result.result]


def wait():
    sides.wait_for(app)


def main(count: int, seed: int) -> None:
    """Send that many canvases, wait until nothing is running, and write the outcome of each."""
    results, texts = {}, {}
    for number in range(count):
        maker = Maker(number, seed)
        canvas = maker.make()
        texts[number] = maker.text
        try:
            results[number] = canvas.apply_async()
        except Exception as error:  # noqa: BLE001 - what is compared
            results[number] = error
    before, quiet = -1, 0
    while quiet < QUIET_SECONDS:
        noted = sum(notes.llen(f"log:c{number}") for number in range(count))
        before, quiet = noted, quiet + 1 if noted == before else 0
        time.sleep(1)
    for number, result in results.items():
        refused = isinstance(result, Exception)
        about = {
            "text": texts[number],
            "log": [json.loads(line) for line in notes.lrange(f"log:c{number}", 0, -1)],
            "refused": refused,
            "ended": type(result).__name__ if refused else json.loads(json.dumps(ended(result), default=repr)),
        }
        sides.write(json.dumps(about))
    # Otherwise Celery complains about each result that is still pending when the interpreter exits.
    os._exit(0)
