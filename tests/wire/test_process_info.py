"""What a process says of itself, written and read."""

import json

import pytest

from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.process_info import (
    PYTHON_LABEL,
    CapsuleFacts,
    ProcessFacts,
    ProcessInfo,
    info_json,
    parse_info,
)

FACTS = ProcessFacts(
    hostname="host",
    started_at=1700000000.5,
    pid=42,
    tag="app",
    capsules=(
        CapsuleFacts("default", 5, "weighted", {"critical": 3, "default": 1}),
        CapsuleFacts("single", 1, "strict", {"serial": 0, "default": 0}),
    ),
    labels=("reliable",),
    identity="host:42:abc",
    version="8.1.7",
)
BEFORE_8_0_9 = ["hostname", "started_at", "pid", "tag", "concurrency", "queues", "weights", "labels", "identity"]


@pytest.mark.parametrize(
    ("version", "keys"),
    [
        ("6.4.1", [key for key in BEFORE_8_0_9 if key != "weights"]),
        ("7.0.2", [*BEFORE_8_0_9, "version"]),
        ("7.3.2", [*BEFORE_8_0_9, "version", "embedded"]),
        ("8.0.9", [*BEFORE_8_0_9[:5], "capsules", *BEFORE_8_0_9[5:], "version", "embedded"]),
        ("8.1.7", [*BEFORE_8_0_9[:4], "capsules", *BEFORE_8_0_9[5:], "version", "embedded"]),
    ],
)
def test_the_keys_stand_in_each_release_s_order(version: str, keys: list[str]) -> None:
    """`launcher.rb` of that release."""
    assert list(json.loads(info_json(FACTS, Dialect.pinned(version)))) == keys


def test_an_unknown_reader_finds_the_concurrency_in_info_too() -> None:
    """Up to 8.1.1 it looks there, later in a hash field; the heartbeat writes both."""
    dialect = Dialect.unknown()

    assert json.loads(info_json(FACTS, dialect))["concurrency"] == 6
    assert dialect.concurrency_field


def test_info_is_ruby_s_json() -> None:
    """No spaces; capsules, unique queues and one object of weights for each capsule."""
    assert info_json(FACTS, Dialect.pinned("8.1.7")).decode() == (
        '{"hostname":"host","started_at":1700000000.5,"pid":42,"tag":"app",'
        '"capsules":{"default":{"concurrency":5,"mode":"weighted","weights":{"critical":3,"default":1}},'
        '"single":{"concurrency":1,"mode":"strict","weights":{"serial":0,"default":0}}},'
        '"queues":["critical","default","serial"],"weights":[{"critical":3,"default":1},{"serial":0,"default":0}],'
        f'"labels":["reliable","{PYTHON_LABEL}"],"identity":"host:42:abc","version":"8.1.7","embedded":false}}'
    )


@pytest.mark.parametrize("version", ["7.3.2", "8.0.9", "8.1.7"])
def test_what_is_written_is_read(version: str) -> None:
    """Our own processes are known by their label."""
    info = parse_info(info_json(FACTS, Dialect.pinned(version)))

    assert info is not None
    assert info.is_python
    assert (info.hostname, info.pid, info.tag, info.identity) == ("host", 42, "app", "host:42:abc")
    assert (info.started_at, info.version, info.embedded) == (1700000000.5, "8.1.7", False)
    assert info.queues == ("critical", "default", "serial")
    assert [(capsule.mode, capsule.weights) for capsule in info.capsules] == [
        ("weighted", {"critical": 3, "default": 1}), ("strict", {"serial": 0, "default": 0}),
    ]  # fmt: skip
    assert info.concurrency == (None if version == "8.1.7" else 6)


def test_a_queue_that_is_served_no_more_is_in_no_capsule() -> None:
    """A capsule may be left without any."""
    left = FACTS.without("default").without("serial")

    assert left.queues == ["critical"]
    assert [(capsule.name, dict(capsule.weights)) for capsule in left.capsules] == [
        ("default", {"critical": 3}), ("single", {}),
    ]  # fmt: skip
    assert left.concurrency == FACTS.concurrency


def _info(**fields: object) -> ProcessInfo:
    info = parse_info(json.dumps(fields).encode())
    assert info is not None
    return info


def test_an_old_process_s_queues_make_one_capsule() -> None:
    """6.4.1 knows neither weights nor capsules nor its version."""
    info = _info(concurrency=10, queues=["a", "b"], labels=[], identity="x")

    assert info.capsules == (CapsuleFacts("default", 10, "strict", {"a": 0, "b": 0}),)
    assert (info.version, info.embedded, info.is_python) == (None, False, False)


def test_the_one_object_of_weights_of_7_0_2_makes_one_capsule() -> None:
    """Equal weights of 1 are the random mode."""
    assert _info(concurrency=3, weights={"a": 1, "b": 1}).capsules == (
        CapsuleFacts("default", 3, "random", {"a": 1, "b": 1}),
    )


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"5", b"{", b"\xff"])
def test_what_is_no_object_is_none(raw: bytes) -> None:
    """A damaged heartbeat does not stop a reader."""
    assert parse_info(raw) is None


def test_values_of_another_type_count_as_absent() -> None:
    """Whoever wrote them."""
    info = _info(
        hostname=5, started_at="x", pid="1", tag=None, concurrency="5", queues={"a": 1}, labels=["a", 5], identity=[],
        version=8, embedded="yes", capsules={"a": 5, "b": {"weights": {"q": "1"}, "mode": 3}},
    )  # fmt: skip

    assert (info.hostname, info.started_at, info.pid, info.tag, info.concurrency) == ("", None, None, "", None)
    assert (info.queues, info.labels, info.identity, info.version, info.embedded) == ((), ("a",), "", None, False)
    assert info.capsules == (CapsuleFacts("b", 0, "strict", {"q": 0}),)
    assert info.fields["version"] == 8
