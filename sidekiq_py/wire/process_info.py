"""The JSON in a process's `info` field, which the Web UI's Busy page reads: its identity, queues and settings."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.json_dialect import dumps, loads_or_none

QueueMode = Literal["strict", "weighted", "random"]

# Every process of ours has this label, so that the detection of the Ruby release skips it.
PYTHON_LABEL = "sidekiq_py"

# No number that a process says of itself is as large. JSON has no bounds, but floats have, and Python prints no integer
# of more than 4,300 digits.
_ABSURD = 2**63


class CapsuleFacts(NamedTuple):
    """
    One group of queues with its own threads.

    Args:
        name: `default`, or the configured name.
        concurrency: How many jobs run at a time.
        mode: `strict`, `weighted` or `random`.
        weights: Maps each queue to its weight, in order; 0 in strict mode.
    """

    name: str
    concurrency: int
    mode: str
    weights: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """
    What one of our processes publishes about itself.

    Args:
        hostname: As in the identity.
        started_at: Seconds since the epoch.
        pid: The pid in its own namespace.
        tag: Shown after the identity; empty if unset.
        capsules: The capsules in order of declaration.
        labels: Shown as badges. `PYTHON_LABEL` is added if it is missing.
        identity: `<hostname>:<pid>:<12 hex>`.
        version: Shown by UIs since 7.0.2.
        embedded: True if it runs inside another program; since 7.0.3, UIs do not send signals to such a process.
        coroutines: How many `async def` jobs it runs at a time in addition to its threads; 0 if none is declared.
    """

    hostname: str
    started_at: float
    pid: int
    tag: str
    capsules: tuple[CapsuleFacts, ...]
    labels: tuple[str, ...]
    identity: str
    version: str
    embedded: bool = False
    coroutines: int = 0

    @property
    def concurrency(self) -> int:
        """
        How many jobs run at a time: the threads of all capsules, plus coroutines.

        Ruby's Web UI divides the number of running jobs by the sum of this over all processes. Counting only threads,
        five threads and 60 coroutines showed a utilization of 1200 %. Source: Sidekiq 6.4.1 and 8.1.7, busy.erb.
        """
        return sum(capsule.concurrency for capsule in self.capsules) + self.coroutines

    @property
    def queues(self) -> list[str]:
        """The names of the queues, without duplicates."""
        return list(dict.fromkeys(queue for capsule in self.capsules for queue in capsule.weights))

    def with_capsule(self, name: str, **changes: Any) -> "ProcessFacts":
        """A copy with other values of these fields in the capsule of that name."""
        capsules = tuple(one._replace(**changes) if one.name == name else one for one in self.capsules)
        return replace(self, capsules=capsules)

    def without(self, queue: str) -> "ProcessFacts":
        """A copy that no longer serves *queue*."""
        capsules = tuple(
            capsule._replace(weights={name: weight for name, weight in capsule.weights.items() if name != queue})
            for capsule in self.capsules
        )
        return replace(self, capsules=capsules)


class ProcessInfo(NamedTuple):
    """
    The parsed `info` of any process; values that are absent are `None` or empty.

    Args:
        hostname: As in the identity.
        started_at: Seconds since the epoch.
        pid: The pid in that process's own namespace.
        tag: Empty if unset.
        concurrency: How many jobs run at a time; since 8.1.2, this is in a separate hash field instead.
        queues: The names of the queues.
        capsules: If there is no `capsules` (before 8.0.9), one for each object in `weights`.
        labels: The badges.
        identity: `<hostname>:<pid>:<12 hex>`.
        version: Absent before 7.0.2.
        embedded: True if it cannot be quieted or stopped remotely.
        fields: The whole parsed object, including unknown keys.
    """

    hostname: str
    started_at: float | None
    pid: int | None
    tag: str
    concurrency: int | None
    queues: tuple[str, ...]
    capsules: tuple[CapsuleFacts, ...]
    labels: tuple[str, ...]
    identity: str
    version: str | None
    embedded: bool
    fields: Mapping[str, Any]

    @property
    def is_python(self) -> bool:
        """True if it is one of our processes."""
        return PYTHON_LABEL in self.labels

    @property
    def served_queues(self) -> tuple[str, ...]:
        """The names of the queues; those of the capsules if `queues` is absent."""
        return self.queues or tuple(dict.fromkeys(name for capsule in self.capsules for name in capsule.weights))


def info_json(facts: ProcessFacts, dialect: Dialect) -> bytes:
    """
    The text for the field `info`, with that release's keys and order.

    Source: Sidekiq 6.4.1, 7.0.2 to 8.1.7, launcher.rb, `to_data`.
    """
    info: dict[str, Any] = {
        "hostname": facts.hostname,
        "started_at": facts.started_at,
        "pid": facts.pid,
        "tag": facts.tag,
    }
    if dialect.concurrency_in_info:
        info["concurrency"] = facts.concurrency
    if dialect.info_has_capsules:
        info["capsules"] = {
            capsule.name: {
                "concurrency": capsule.concurrency,
                "mode": capsule.mode,
                "weights": dict(capsule.weights),
            }
            for capsule in facts.capsules
        }
    info["queues"] = facts.queues
    if dialect.info_has_weights:
        info["weights"] = [dict(capsule.weights) for capsule in facts.capsules]
    info["labels"] = list(dict.fromkeys((*facts.labels, PYTHON_LABEL)))
    info["identity"] = facts.identity
    if dialect.info_has_version:
        info["version"] = facts.version
    if dialect.info_has_embedded:
        info["embedded"] = facts.embedded
    return dumps(info, dialect.float_text)


def parse_info(raw: bytes) -> ProcessInfo | None:
    """
    Parse the `info` of a process of any release. Returns `None` if it is not a JSON object. Values of the wrong type
    count as absent.
    """
    fields = loads_or_none(raw)
    if not isinstance(fields, dict):
        return None
    version = fields.get("version")
    return ProcessInfo(
        hostname=_text(fields.get("hostname")),
        started_at=_number(fields.get("started_at")),
        pid=_whole(fields.get("pid")),
        tag=_text(fields.get("tag")),
        concurrency=_whole(fields.get("concurrency")),
        queues=tuple(_texts(fields.get("queues"))),
        capsules=tuple(_capsules(fields)),
        labels=tuple(_texts(fields.get("labels"))),
        identity=_text(fields.get("identity")),
        version=version if isinstance(version, str) else None,
        embedded=fields.get("embedded") is True,
        fields=fields,
    )


def _capsules(fields: Mapping[str, Any]) -> Iterator[CapsuleFacts]:
    named = fields.get("capsules")
    if isinstance(named, dict):
        for name, capsule in named.items():
            if isinstance(capsule, dict):
                weights = _weights(capsule.get("weights"))
                mode = _text(capsule.get("mode")) or mode_of(weights.values())
                yield CapsuleFacts(name, _whole(capsule.get("concurrency")) or 0, mode, weights)
        return
    listed = fields.get("weights")
    groups = [listed] if isinstance(listed, dict) else listed  # 7.0.2 wrote one object for all capsules
    if not isinstance(groups, list):
        groups = [dict.fromkeys(_texts(fields.get("queues")), 0)]
    total = _whole(fields.get("concurrency")) or 0
    for index, group in enumerate(groups):
        weights = _weights(group)
        name, concurrency = "default" if index == 0 else "", total if len(groups) == 1 else 0
        yield CapsuleFacts(name, concurrency, mode_of(weights.values()), weights)


def mode_of(weights: Collection[int]) -> QueueMode:
    """How a capsule chooses the next queue. Source: Sidekiq 7.3.2 and 8.1.7, capsule.rb, `queues=`."""
    if not any(weights):
        return "strict"
    return "random" if all(weight == 1 for weight in weights) else "weighted"


def _weights(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        return {}
    return {queue: _whole(weight) or 0 for queue, weight in value.items()}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, str))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < _ABSURD else None


def _whole(value: Any) -> int | None:
    return value if type(value) is int and abs(value) < _ABSURD else None
