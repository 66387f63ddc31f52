"""
sidekiq-cron's keys and hashes, by release of the gem. No socket here: values to texts and back.

Nothing in Redis names the gem's release, so a `Layout` is chosen (`cron_version`) or told from the keys that are there.
Releases 1.x and 2.x use other keys for one job, and so fire twice between themselves.

Source: sidekiq-cron 1.2.0, 1.8.0 and 2.3.1, job.rb, `to_hash`, `save`, `enque!`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from sidekiq_py.errors import ConfigError, JsonParseError
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE, set_key
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads

_FIELDS_1_2 = (
    *("name", "klass", "cron", "description", "args", "message", "status", "active_job", "queue_name_prefix"),
    *("queue_name_delimiter", "last_enqueue_time"),
)
_FIELDS_1_8 = (
    *("name", "klass", "cron", "description", "args", "date_as_argument", "message", "status", "active_job"),
    *("queue_name_prefix", "queue_name_delimiter", "last_enqueue_time", "symbolize_args"),
)
_FIELDS_2 = (
    *("name", "namespace", "klass", "cron", "description", "source", "args", "date_as_argument", "message", "status"),
    *("active_job", "queue_name_prefix", "queue_name_delimiter", "retry", "last_enqueue_time", "symbolize_args"),
)
_TRUE = re.compile(r"true|t|yes|y|1", re.IGNORECASE)
_NEEDS_RUBY = '"_sc_globalid"'


@dataclass(frozen=True, slots=True)
class Layout:
    """
    How one line of releases writes.

    Args:
        version: As in `cron_version`: "1.2", "1.8" or "2".
        fields: Of the hash, in order.
        true, false: How it writes booleans.
    """

    version: str
    fields: tuple[str, ...]
    true: str
    false: str

    @property
    def has_namespaces(self) -> bool:
        """Jobs stand in namespaces of the gem's."""
        return self.version == "2"

    def set_key(self, namespace: str = DEFAULT_NAMESPACE) -> str:
        """The set of the jobs' keys."""
        return set_key(namespace if self.has_namespaces else None)

    def job_key(self, name: str, namespace: str = DEFAULT_NAMESPACE) -> str:
        """The hash of a job; what else there is of it stands behind it."""
        return f"cron_job:{namespace}:{name}" if self.has_namespaces else f"cron_job:{name}"

    def history_line(self, jid: str, now: float) -> str:
        """A line of `:jid_history`."""
        moment = datetime.fromtimestamp(now, UTC)
        when = f"{moment:%Y-%m-%d %H:%M:%S} {'UTC' if self.has_namespaces else '+0000'}"
        return json_text({"jid": jid, "enqueued": when})


LAYOUTS = {
    "1.2": Layout("1.2", _FIELDS_1_2, "true", "false"),
    "1.8": Layout("1.8", _FIELDS_1_8, "true", "false"),
    "2": Layout("2", _FIELDS_2, "1", "0"),
}


def layout_of(version: str) -> Layout:
    """
    The layout of a release of the gem.

    Args:
        version: Such as "1.2", "1.8.0" or "2.3.1".

    Raises:
        ConfigError: There is none.
    """
    parts = str(version).split(".")
    if parts[0] == "2":
        return LAYOUTS["2"]
    if parts[0] == "1":
        minor = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 8
        return LAYOUTS["1.2" if minor < 8 else "1.8"]
    raise ConfigError(f"cron_version is {version!r}; give the release of sidekiq-cron: 1.2, 1.8 or 2")


class DamagedJobError(ConfigError):
    """A hash that is no periodic job; the message says why."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """
    A periodic job as it is stored.

    Args:
        klass: The class that is pushed.
        cron: The text, with its zone if it has one.
        source: `schedule` for a job of the gem's file, else `dynamic`; always that for ours.
        args: As JSON text, as the gem keeps it.
        message: The payload that is pushed, as JSON text, without what each push adds.
        last_enqueue_time: `YYYY-MM-DD HH:MM:SS +0000`, or empty.
        retry: A number, `true`, `false` or empty.
    """

    name: str
    klass: str
    cron: str
    message: str
    args: str = "[]"
    namespace: str = DEFAULT_NAMESPACE
    description: str = ""
    source: str = "dynamic"
    date_as_argument: bool = False
    status: str = "enabled"
    active_job: bool = False
    queue_name_prefix: str = ""
    queue_name_delimiter: str = ""
    retry: str = ""
    last_enqueue_time: str = ""
    symbolize_args: bool = False

    @property
    def is_enabled(self) -> bool:
        """As the gem has it."""
        return self.status == "enabled"

    def fields(self, layout: Layout) -> list[str]:
        """Names and values of the hash, one behind the other."""
        values: list[str] = []
        for name in layout.fields:
            value = getattr(self, name)
            text = (layout.true if value else layout.false) if isinstance(value, bool) else value
            values += (name, text)
        return values

    def payload(self, now: float) -> dict[str, Any]:
        """
        What is pushed at *now*.

        Raises:
            DamagedJobError: The message is no payload, or its arguments no list.
        """
        message, args = _parsed(self.message, "message"), arguments_of(self.args)
        if not isinstance(message, dict) or not isinstance(message.get("class"), str):
            raise DamagedJobError(f"message is {self.message!r}, which is not a job; save it anew")
        return {**message, "args": [*args, now] if self.date_as_argument else args}

    def why_ruby_alone(self) -> str | None:
        """Why only Ruby can fire it as its author wants it, or None."""
        if self.active_job:
            return "it is an Active Job"
        if self.symbolize_args:
            return "its arguments become symbols"
        if _NEEDS_RUBY in self.args:
            return "its arguments name records of Rails"
        try:
            if "retry" not in self.payload(0.0):
                return "its message lacks the options of its class"
        except DamagedJobError as error:
            return str(error)
        return None


def read_entry(key: str, stored: Mapping[bytes, bytes]) -> CronEntry:
    """
    What a hash says.

    Raises:
        DamagedJobError: It lacks what a job needs.
    """
    texts = {name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in stored.items()}
    missing = [name for name in ("name", "klass", "cron") if not texts.get(name)]
    if missing:
        raise DamagedJobError(f"the hash {key} has no {' and no '.join(missing)}; save the job anew or delete the key")
    known = {name: texts[name] for name in CronEntry.__dataclass_fields__ if name in texts}
    values: dict[str, Any] = {"message": "{}", **known}
    for name in ("date_as_argument", "active_job", "symbolize_args"):
        values[name] = _TRUE.fullmatch(texts.get(name, "")) is not None
    return CronEntry(**values)


def arguments_of(text: str) -> list[Any]:
    """The arguments in a hash's `args`; what is no JSON is one text, as the gem has it."""
    try:
        found = loads(text.encode(errors="surrogateescape"))
    except JsonParseError:
        return [text]
    return found if isinstance(found, list) else [found]


def message_of(klass: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The gem's `message`: the options of the class, in their order, then class and arguments."""
    return json_text({**options, "class": klass, "args": list(args)})


def json_text(value: Any) -> str:
    """As Ruby's `JSON.generate` writes it."""
    return dumps(value, FloatText.RUBY).decode()


def enqueue_time(now: float) -> str:
    """A `last_enqueue_time`."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} +0000"


def epoch_of(text: str) -> float | None:
    """The moment of a `last_enqueue_time` as any release writes it, or None."""
    match = re.match(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d+)? ?(?:UTC|Z|([+-]\d\d):?(\d\d))", text, re.ASCII)
    if match is None:
        return None
    zone = f"{match[3]}:{match[4]}" if match[3] else "+00:00"
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").timestamp()
    except ValueError:
        return None


def tick_text(tick: int) -> str:
    """A member of `:enqueued`."""
    return f"{datetime.fromtimestamp(tick, UTC):%Y-%m-%dT%H:%M:%SZ}"


def tick_of(member: str) -> int | None:
    """The tick that a member of `:enqueued` names."""
    try:
        return int(datetime.strptime(member, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


def _parsed(text: str, what: str) -> Any:
    try:
        return loads(text.encode(errors="surrogateescape"))
    except JsonParseError as error:
        raise DamagedJobError(f"{what} is no JSON: {error}") from error


@dataclass(frozen=True, slots=True)
class OwnState:
    """
    What only we keep of a job, in a hash beside the gem's.

    Args:
        by: Who declared it: `<program>:<module or file>`; empty for one that was added by hand.
        rival: Who had declared it before that, if it was another program, behind the time at which it lost the job.
        since: When it was declared, or its text last changed, or it was last enabled; ticks before are never caught up.
        fired: The last tick that Python has fired or passed over.
        overlap: `allow` or `skip`.
        catch_up_seconds: How far back missed ticks are fired; None as the gem: the last one, for a minute.
        is_ours: Python fires it.
        running: The jid of the last run, where overlap is `skip`, until it ends.
        reason: Why it is disabled.
        planted: Ticks to come that were taken in advance, so that Ruby cannot fire them.
    """

    by: str = ""
    rival: str = ""
    cron: str = ""
    since: float = 0.0
    fired: int = 0
    overlap: str = "allow"
    catch_up_seconds: float | None = None
    jitter_seconds: float = 0.0
    once_on_dst: bool = False
    is_ours: bool = False
    running: str = ""
    running_since: float = 0.0
    reason: str = ""
    was_disabled: bool = False
    copy: str = ""
    planted: frozenset[int] = field(default_factory=frozenset)

    def rival_since(self, moment: float) -> str:
        """Another program that had declared it after *moment*; empty for none."""
        at, _, by = self.rival.partition(" ")
        return by if _number(at) > moment else ""

    @property
    def has_policy(self) -> bool:
        """It does what the gem cannot, so its ticks are taken in advance."""
        return (
            self.overlap != "allow" or self.catch_up_seconds is not None or self.jitter_seconds > 0 or self.once_on_dst
        )


def read_own(stored: Mapping[bytes, bytes]) -> OwnState:
    """Our hash; what others have put there counts as missing."""
    texts = {name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in stored.items()}
    catch_up = texts.get("catch_up", "")
    return OwnState(
        by=texts.get("by", ""),
        rival=texts.get("rival", ""),
        cron=texts.get("cron", ""),
        since=_number(texts.get("since")),
        fired=int(_number(texts.get("fired"))),
        overlap=texts.get("overlap", "allow"),
        catch_up_seconds=_number(catch_up) if catch_up else None,
        jitter_seconds=_number(texts.get("jitter")),
        once_on_dst=texts.get("once_on_dst") == "1",
        is_ours=texts.get("ours") == "1",
        running=texts.get("running", ""),
        running_since=_number(texts.get("running_since")),
        reason=texts.get("reason", ""),
        was_disabled=texts.get("was_disabled") == "1",
        copy=texts.get("copy", ""),
        planted=frozenset(int(_number(name[2:])) for name in texts if name.startswith("p:")),
    )


def _number(text: str | None) -> float:
    try:
        number = float(text or 0)
    except ValueError:
        return 0.0
    return number if isfinite(number) else 0.0
