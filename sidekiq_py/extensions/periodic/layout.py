"""
sidekiq-cron's keys and hashes, by release of the gem. No I/O here: only values to texts and back.

Nothing in Redis names the gem's release, so a `Layout` is configured (`cron_version`) or detected from the existing
keys. Releases 1.x and 2.x use different keys for the same job, so if both run, it fires twice.

Source: sidekiq-cron 1.2.0, 1.8.0 and 2.3.1, job.rb, `to_hash`, `save`, `enque!`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sidekiq_py.errors import ConfigError, JsonParseError
from sidekiq_py.extensions.periodic.keys import DEFAULT_NAMESPACE, set_key
from sidekiq_py.wire.dialect import FloatText
from sidekiq_py.wire.json_dialect import dumps, loads, loads_or_none
from sidekiq_py.wire.json_writer import to_s
from sidekiq_py.wire.number_text import to_finite

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
# In the year 4147. With what is later, another program has put it there, and not all calculations work.
LATEST = 2**36
_NEEDS_RUBY = '"_sc_globalid"'


class Layout(NamedTuple):
    """
    The format of one line of releases.

    Args:
        version: As in `cron_version`: "1.2", "1.8" or "2".
        fields: The fields of the hash, in order.
        true, false: How it writes booleans.
    """

    version: str
    fields: tuple[str, ...]
    true: str
    false: str

    @property
    def has_namespaces(self) -> bool:
        """True if jobs have namespaces of the gem."""
        return self.version == "2"

    def set_key(self, namespace: str = DEFAULT_NAMESPACE) -> str:
        """The key of the set that lists the jobs' keys."""
        return set_key(namespace if self.has_namespaces else None)

    def key_of(self, entry: "CronEntry") -> str:
        """The key of a job's hash; its other keys append to it."""
        return f"cron_job:{entry.namespace}:{entry.name}" if self.has_namespaces else f"cron_job:{entry.name}"

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
        ConfigError: There is no such release.
    """
    parts = str(version).split(".")
    if parts[0] == "2":
        return LAYOUTS["2"]
    if parts[0] == "1":
        minor = int(parts[1]) if len(parts) > 1 and parts[1].isdigit() else 8
        return LAYOUTS["1.2" if minor < 8 else "1.8"]
    raise ConfigError(f"cron_version is {version!r}; give the release of sidekiq-cron: 1.2, 1.8 or 2")


class DamagedJobError(ConfigError):
    """A hash is not a periodic job; the message says why."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """
    A periodic job as stored.

    Args:
        klass: The class that is pushed.
        cron: The text, with its zone if it has one.
        source: `schedule` for a job of the gem's file, else `dynamic`; Python's are always `dynamic`.
        args: The arguments as JSON text, as the gem stores them.
        message: The payload to push as JSON text, without what each push adds.
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
        """True if it is enabled, by the gem's definition."""
        return self.status == "enabled"

    def fields(self, layout: Layout) -> list[str]:
        """The names and values of the hash, alternating."""
        values: list[str] = []
        for name in layout.fields:
            value = getattr(self, name)
            text = (layout.true if value else layout.false) if isinstance(value, bool) else value
            values += (name, text)
        return values

    def payload(self, now: float) -> dict[str, Any]:
        """
        The payload to push at *now*.

        Raises:
            DamagedJobError: The message is not a payload.
        """
        try:
            message = loads(self.message.encode(errors="surrogateescape"))
        except JsonParseError as error:
            raise DamagedJobError(f"message is not JSON: {error}") from error
        if not isinstance(message, dict) or not isinstance(message.get("class"), str):
            raise DamagedJobError(f"message is {self.message!r}, which is not a job; save it again")
        args = arguments_of(self.args)
        return {**message, "args": [*args, now] if self.date_as_argument else args}

    def why_ruby_alone(self) -> str | None:
        """The reason why only Ruby can fire it correctly; None if Python can."""
        if self.active_job:
            return "it is an Active Job"
        if self.symbolize_args:
            return "its arguments become symbols"
        if _NEEDS_RUBY in self.args:
            return "its arguments name records of Rails"
        try:
            names = list(self.payload(0.0))
            # A class's own options come first. What the schedule gives comes last, also for an Active Job (2.x).
            if "retry" not in names[: names.index("class")]:
                return "its message lacks the options of its class"
        except DamagedJobError as error:
            return str(error)
        return None


def read_entry(key: str, stored: Mapping[bytes, bytes]) -> CronEntry:
    """
    Parse a job's hash.

    Raises:
        DamagedJobError: A required field is missing.
    """
    texts = _texts(stored)
    missing = [name for name in ("name", "klass", "cron") if not texts.get(name)]
    if missing:
        raise DamagedJobError(f"the hash {key} has no {' and no '.join(missing)}; save the job again or delete the key")
    known = {name: texts[name] for name in CronEntry.__dataclass_fields__ if name in texts}
    values: dict[str, Any] = {"message": "{}", **known}
    for name in ("date_as_argument", "active_job", "symbolize_args"):
        values[name] = is_true(texts.get(name, ""))
    return CronEntry(**values)


def is_true(value: Any) -> bool:
    """True for what the gem takes for true, in a hash and in a file, where `"no"` in quotes is a text and not true."""
    return _TRUE.fullmatch(to_s(value)) is not None


def arguments_of(text: str) -> list[Any]:
    """The arguments in a hash's `args`; a text that is not JSON is the only argument, as in the gem."""
    try:
        found = loads(text.encode(errors="surrogateescape"))
    except JsonParseError:
        return [text]
    return found if isinstance(found, list) else [found]


def message_of(klass: str, args: Sequence[Any], options: Mapping[str, Any]) -> str:
    """The gem's `message`: the options of the class, in their order, then class and arguments."""
    return json_text({**options, "class": klass, "args": list(args)})


def json_text(value: Any) -> str:
    """JSON as Ruby's `JSON.generate` writes it."""
    return dumps(value, FloatText.RUBY).decode()


def enqueue_time(now: float) -> str:
    """The text for `last_enqueue_time`."""
    return f"{datetime.fromtimestamp(now, UTC):%Y-%m-%d %H:%M:%S} +0000"


def epoch_of(text: str) -> float | None:
    """Parse a `last_enqueue_time` of any release into epoch seconds; None if that fails."""
    match = re.match(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:\.\d+)? ?(?:UTC|Z|([+-]\d\d):?(\d\d))", text, re.ASCII)
    if match is None:
        return None
    zone = f"{match[3]}:{match[4]}" if match[3] else "+00:00"
    try:
        return datetime.fromisoformat(f"{match[1]}T{match[2]}{zone}").timestamp()
    except ValueError:
        return None


def tick_text(tick: int) -> str:
    """The member of `:enqueued` for a tick."""
    return f"{datetime.fromtimestamp(tick, UTC):%Y-%m-%dT%H:%M:%SZ}"


def tick_of(member: str) -> int | None:
    """The tick of a member of `:enqueued`; None if it is not a time."""
    try:
        return int(datetime.strptime(member, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp())
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class OwnState:
    """
    Python's own data about a job, in a hash beside the gem's.

    Args:
        by: What declared it: `<program>:<module or file>`; empty for a job that was added by hand.
        rival: Another program that declared it before, preceded by the time at which it lost the job.
        since: When it was declared, its text last changed, or it was last enabled. Earlier ticks are never caught up.
        fired: The last tick that Python has fired or skipped.
        overlap: `allow` or `skip`.
        catch_up_seconds: How far back missed ticks are fired. None as in the gem: only the last one, for a minute.
        is_ours: True if Python fires it.
        running: The jid of the last run until it ends, if overlap is `skip`.
        reason: Why it is disabled.
        planted: Coming ticks that were claimed in advance, so that Ruby cannot fire them.
    """

    by: str = ""
    rival: str = ""
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
        """The program that lost the job to this one, if it did so after *moment*; otherwise empty."""
        at, _, by = self.rival.partition(" ")
        return by if to_finite(at) > moment else ""

    @property
    def copied(self) -> dict[str, Any]:
        """The fields of `copy`; empty if they cannot be read."""
        found = loads_or_none(self.copy.encode(errors="surrogateescape"))
        return found if isinstance(found, dict) else {}

    @property
    def klass(self) -> str:
        """The class that Python declared; empty if it is not known."""
        return str(self.copied.get("klass", ""))

    @property
    def has_policy(self) -> bool:
        """True if it uses an option that the gem lacks, so that its ticks must be claimed in advance."""
        return (
            self.overlap != "allow" or self.catch_up_seconds is not None or self.jitter_seconds > 0 or self.once_on_dst
        )


def read_own(stored: Mapping[bytes, bytes]) -> OwnState:
    """Parse Python's own hash; values that another program has put there count as missing."""
    texts = _texts(stored)
    catch_up = texts.get("catch_up", "")
    return OwnState(
        by=texts.get("by", ""),
        rival=texts.get("rival", ""),
        since=_moment(texts.get("since")),
        fired=int(_moment(texts.get("fired"))),
        overlap=texts.get("overlap", "allow"),
        catch_up_seconds=_moment(catch_up) if catch_up else None,
        jitter_seconds=_moment(texts.get("jitter")),
        once_on_dst=texts.get("once_on_dst") == "1",
        is_ours=texts.get("ours") == "1",
        running=texts.get("running", ""),
        running_since=_moment(texts.get("running_since")),
        reason=texts.get("reason", ""),
        was_disabled=texts.get("was_disabled") == "1",
        copy=texts.get("copy", ""),
        planted=frozenset(int(_moment(name[2:])) for name in texts if name.startswith("p:")),
    )


def _texts(stored: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(errors="replace"): value.decode(errors="surrogateescape") for name, value in stored.items()}


def _moment(text: str | None) -> float:
    """A number of seconds with which times can be calculated; 0 for another."""
    seconds = to_finite(text)
    return seconds if 0 <= seconds < LATEST else 0.0
