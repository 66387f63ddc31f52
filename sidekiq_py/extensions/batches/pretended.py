"""
In-memory batches for the testing modes: the steps of `lua/batch.lua` for programs under test, without Redis.

Each mode starts without batches. Callbacks are enqueued like other jobs; nothing expires, and there is no audit.
"""

import time
from collections.abc import Callable
from typing import Any

from sidekiq_py import program
from sidekiq_py.extensions.batches.errors import BatchClosedError, BatchDoneError, BatchGoneError
from sidekiq_py.extensions.batches.member import KEY
from sidekiq_py.redis_access.job_path.push import Outgoing
from sidekiq_py.wire.json_dialect import dumps_known, loads


class _Pretended:
    def __init__(self, bid: str, parent: "_Pretended | None") -> None:
        self.bid = bid
        self.parent = parent
        self.fields: dict[str, str] = {}
        self.callbacks: dict[str, bytes] = {}
        self.tokens: dict[str, str] = {}
        self.children: list[_Pretended] = []
        self.events: dict[str, float] = {}
        self.next = self.total = 0
        self.succeeded: set[int] = set()
        self.tried: set[int] = set()
        self.members: set[int] = set()
        self.states: dict[int, tuple[str, str, bytes]] = {}

    @property
    def pending(self) -> int:
        return len(self.members - self.succeeded)

    def add(self, numbers: range) -> None:
        self.members.update(numbers)
        self.total += len(numbers)

    def fire(self, event: str) -> None:
        if event in self.events:
            return
        self.events[event] = time.time()
        for name, text in list(self.callbacks.items()):
            if name.startswith(event + ":"):
                self._enqueue(event, text)
        if self.parent is not None:
            if event == "death":
                self.parent.fire("death")
            else:
                self.parent.check()

    def _enqueue(self, event: str, text: bytes) -> None:
        queue, _, head = text.partition(b"\n")
        member = b""
        if self.parent is not None:
            number = self.parent.next
            self.parent.next += 1
            self.parent.add(range(number, number + 1))
            if event != "complete":
                self.parent.tried.add(number)
            member = b',"%b":%b' % (KEY.encode(), dumps_known([self.parent.bid, number, event]))
        is_ms = self.fields.get("ms_times") == "1"
        stamp = str(int(time.time() * 1000) if is_ms else time.time()).encode()
        raw = b'%b%b,"enqueued_at":%b}' % (head, member, stamp)
        take = program.interceptor
        assert take is not None
        take([Outgoing(str(loads(raw)["jid"]), queue.decode(), None, raw)])

    def check(self) -> None:
        if self.tokens:
            return
        if not (self.members - self.tried - self.succeeded) and all("complete" in one.events for one in self.children):
            self.fire("complete")
        is_done = not self.pending and all("success" in one.events for one in self.children)
        if is_done and "complete" in self.events and "invalidated" not in self.events:
            self.fire("success")

    def end(self, state: str, number: int, jid: str, about: bytes) -> None:
        self.tokens.pop(jid, None)
        if number in self.members and number not in self.succeeded and state != "attempt":
            if state == "succeeded":
                self.succeeded.add(number)
                self.states.pop(number, None)
            else:
                self.tried.add(number)
                self.states[number] = (state, jid, about)
                if state == "dead":
                    self.fire("death")
        self.check()

    def reserve(self, count: int, *sender: object) -> int:
        first, self.next = self.next, self.next + count
        return first

    def leave(self, token: str) -> int:
        self.tokens.pop(token, None)
        self.check()
        return 1

    def close(self) -> int:
        count = len(self.tokens)
        self.tokens.clear()
        self.check()
        return count

    def remove(self, *numbers: int) -> int:
        gone = self.members & set(numbers) - self.succeeded
        self.members -= gone
        self.total -= len(gone)
        for number in gone:
            self.states.pop(number, None)
        self.check()
        return len(gone)

    def invalidate(self) -> int:
        if "invalidated" in self.events:
            return 0
        self.events["invalidated"] = time.time()
        return 1 + sum(child.invalidate() for child in self.children)

    def invalidated(self, cursor: bytes) -> tuple[int, bytes]:
        return self.invalidate(), b"0"


class Pretending:
    """The batches of one testing mode."""

    def __init__(self) -> None:
        self._batches: dict[str, _Pretended] = {}

    def bids(self, *, newest_first: bool = True) -> list[str]:
        """The ids of all batches."""
        return list(reversed(self._batches)) if newest_first else list(self._batches)

    def fields(self, bid: str) -> dict[str, str]:
        """The fields that the hash in Redis would have; empty if there is no such batch."""
        one = self._batches.get(bid)
        if one is None:
            return {}
        found = {
            **one.fields,
            "total": str(one.total),
            "pending": str(one.pending),
            "kids": str(len(one.children)),
            **{f"{event}_at": repr(at) for event, at in one.events.items()},
            **{f"token:{token}": text for token, text in one.tokens.items()},
        }
        for state, _, _ in one.states.values():
            found[f"n:{state}"] = str(int(found.get(f"n:{state}", 0)) + 1)
        if one.parent is not None:
            found["parent"] = one.parent.bid
        return found

    def members(self, bid: str) -> dict[int, tuple[str, str, bytes]]:
        """State, jid and error JSON of the members that did not succeed, by number."""
        one = self._batches.get(bid)
        return {} if one is None else dict(one.states)

    def add(self, bid: str, first: int, count: int, token: str) -> None:
        """Record pushed jobs."""
        one = self._of(bid)
        if token not in one.tokens:
            raise BatchClosedError(bid)
        one.add(range(first, first + count))

    def run(self, step: str, bid: str, words: tuple[Any, ...]) -> Any:
        """
        Run a step, like `steps.call`.

        Raises:
            BatchError: The batch refused the step.
        """
        if step == "ends":
            one = self._batches.get(bid)
            if one is not None:
                one.end(*words)
            return 1
        if step == "open":
            return self._open(bid, words)
        steps: dict[str, Callable[..., Any]] = {
            "reserve": _Pretended.reserve,
            "leave": _Pretended.leave,
            "close": _Pretended.close,
            "invalidate": _Pretended.invalidated,
            "remove": _Pretended.remove,
            "delete": self._delete,
        }
        return steps[step](self._of(bid), *words)

    def _of(self, bid: str) -> _Pretended:
        one = self._batches.get(bid)
        if one is None:
            raise BatchGoneError(bid)
        return one

    def _open(self, bid: str, words: tuple[Any, ...]) -> int:
        token, number, who, may_make, parent_bid, pairs, *rest = words
        one = self._batches.get(bid)
        if one is None:
            if may_make != "1":
                raise BatchGoneError(bid)
            parent = self._batches.get(parent_bid)
            if parent is not None and "success" in parent.events:
                raise BatchDoneError(parent_bid)
            one = self._batches[bid] = _Pretended(bid, parent)
            one.fields = {"created_at": repr(time.time())}
            one.fields |= {str(rest[at]): str(rest[at + 1]) for at in range(0, 2 * pairs, 2)}
            one.callbacks = {rest[at]: rest[at + 1] for at in range(2 * pairs, len(rest), 2)}
            if one.parent is not None:
                one.parent.children.append(one)
                if "invalidated" in one.parent.events:
                    one.invalidate()
        elif "success" in one.events and number == "-":
            raise BatchDoneError(bid)
        one.tokens[token] = f"{int(time.time())} {number} {who}"
        return 1

    def _delete(self, one: _Pretended) -> int:
        del self._batches[one.bid]
        for child in one.children:
            child.parent = None
        if one.parent is not None:
            one.parent.children.remove(one)
            one.parent.check()
        return 1


_mode: object = None
_pretending = Pretending()


def batches_of(mode: object) -> Pretending:
    """The batches of the testing mode *mode*, which has none at first."""
    global _mode, _pretending
    if mode is not _mode:
        _mode, _pretending = mode, Pretending()
    return _pretending
