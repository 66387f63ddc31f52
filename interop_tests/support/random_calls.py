"""
Random client calls: classes with options, `set`, intervals, bulk, items by name and by class, unusual arguments.

A call is JSON, so that it can be made in both Ruby and Python.
"""

import random
from collections.abc import Callable, Mapping
from typing import Any

Call = dict[str, Any]

FAR_AHEAD = 4_000_000_000
INTERVALS = [0, -5, 60, 3600, 999_999_999, 1_000_000_000, FAR_AHEAD, FAR_AHEAD + 0.5, FAR_AHEAD + 0.1234567, 1e12, 1e16]
SCALARS = [
    *(None, True, False, 0, -1, 7, 2**63, 2**70, -(10**30), 1.5, -0.0, 1e-7, 1e15, 1e22, 123456.789, 5e-324),
    *("", "x", "é\u2028😀", 'a\nb"\\/</', "\u0000\u001f\u007f"),
]
KEYS = ["a", "b", "é", "10", "9", "z z", ""]


class RandomCalls:
    """
    Generates calls.

    Args:
        seed: The same seed gives the same calls.
        has_bulk: True if the release has `perform_bulk` (6.3) and `set(wait=…)`.
    """

    def __init__(self, seed: int, *, has_bulk: bool) -> None:
        self._random = random.Random(seed)
        self._has_bulk = has_bulk
        choice = self._random.choice
        self._options: dict[str, Callable[[], Any]] = {
            "queue": lambda: choice(["low", "critical", "default"]),
            "retry": lambda: choice([True, False, 0, 1, 3, 25]),
            "backtrace": lambda: choice([True, False, 5]),
            "dead": lambda: choice([True, False]),
            "tags": lambda: choice([[], ["a"], ["a", "é b"]]),
            "retry_queue": lambda: "slow",
            "retry_for": lambda: choice([3600, 10]),
            "log_level": lambda: "debug",
            "display_class": lambda: "Shown",
            "extra": self._value,
            "zeta": self._value,
        }
        self._set_options = self._options | {
            "retry": lambda: choice([True, False, 0, 1, None]),
            "jid": lambda: choice([None, "chosen", "0123456789abcdef01234567"]),
            "created_at": lambda: choice([1_700_000_000.5, 1_700_000_000_123]),
            "enqueued_at": lambda: choice([1_700_000_000.25, 1_700_000_000_999]),
            "wrapped": lambda: "Inner",
            "sync": lambda: False,
        }

    def call(self) -> Call:
        """One call."""
        kinds = [self._perform_async, self._perform_in, self._push, self._push_bulk]
        kind = self._random.choice([*kinds, self._perform_bulk] if self._has_bulk else kinds)
        return {"options": self._some(self._options, 3)} | kind()

    def _perform_async(self) -> Call:
        call = self._with_set({"call": "perform_async", "args": self._arguments()})
        if self._has_bulk and "set" in call and self._random.random() < 0.2:
            call["set"][self._random.choice(["wait", "wait_until"])] = self._random.choice(INTERVALS)
        return call

    def _perform_in(self) -> Call:
        interval = self._random.choice(INTERVALS)
        return self._with_set({"call": "perform_in", "args": self._arguments(), "interval": interval})

    def _perform_bulk(self) -> Call:
        call = self._with_set({"call": "perform_bulk", "args": [self._arguments() for _ in range(self._up_to(4))]})
        if "set" in call:
            self._leave_one_jid(call["set"], call["args"])
            if call["args"] and self._random.random() < 0.4:
                call["set"]["at"] = self._moments(len(call["args"]))
        return call

    def _push(self) -> Call:
        item = self._some(self._set_options, 4) | {"args": self._arguments()}
        if self._random.random() < 0.3:
            item["at"] = self._random.choice([FAR_AHEAD, FAR_AHEAD + 0.5, 1e17, 1_600_000_000.5])
        return self._item("push", item)

    def _push_bulk(self) -> Call:
        item = self._some(self._set_options, 4) | {"args": [self._arguments() for _ in range(self._up_to(4))]}
        self._leave_one_jid(item, item["args"])
        if item["args"] and self._random.random() < 0.4:
            item["at"] = self._moments(len(item["args"]))
        return self._item("push_bulk", item)

    @staticmethod
    def _leave_one_jid(options: dict[str, Any], args: list[Any]) -> None:
        """Several jobs cannot have one jid. Ruby draws another even for one job; this one looks like a drawn one."""
        if options.get("jid") is not None:
            options["jid"] = "0123456789abcdef01234567" if len(args) == 1 else None

    def _item(self, call: str, item: dict[str, Any]) -> Call:
        names = ["class", *item]
        self._random.shuffle(names)
        shuffled = {name: item.get(name, "RandomJob") for name in names}
        return {"call": call, "item": shuffled, "by_class": self._random.random() < 0.5}

    def _with_set(self, call: Call) -> Call:
        return call | {"set": self._some(self._set_options, 4)} if self._random.random() < 0.6 else call

    def _some(self, pool: Mapping[str, Callable[[], Any]], most: int) -> dict[str, Any]:
        return {name: pool[name]() for name in self._random.sample(sorted(pool), self._up_to(most))}

    def _moments(self, count: int) -> Any:
        each = [FAR_AHEAD + number + 0.25 for number in range(count)]
        return self._random.choice([FAR_AHEAD, FAR_AHEAD + 0.5, each])

    def _arguments(self) -> list[Any]:
        return [self._value() for _ in range(self._up_to(3))]

    def _value(self, depth: int = 0) -> Any:
        draw = self._random.random()
        if depth > 3 or draw < 0.5:
            return self._random.choice(SCALARS)
        if draw < 0.6:
            return self._random.random() * 10.0 ** self._random.randint(-12, 20)
        if draw < 0.8:
            return [self._value(depth + 1) for _ in range(self._up_to(3))]
        return {self._random.choice(KEYS): self._value(depth + 1) for _ in range(self._up_to(3))}

    def _up_to(self, most: int) -> int:
        return self._random.randint(0, most)
