"""Our payloads and those of real Sidekiq, byte for byte, for the same calls and moves."""

from random import Random
from typing import Any

from sidekiq_py.wire.dialect import Dialect
from sidekiq_py.wire.failure import compress_backtrace, decrement_for_manual_retry, record_failure
from sidekiq_py.wire.json_dialect import dump_args, dump_args_many, loads
from sidekiq_py.wire.payload import (
    absolute_at,
    bulk_payload,
    call_item,
    dump,
    encode,
    for_queue,
    normalize,
    parse_job,
    prepare_repush,
)
from sidekiq_py.wire.push_template import PushTemplate
from tests.wire.ruby_peer import JID, RubyPeer
from tests.wire.values import random_text, random_value

NOW = 1700000000.1234567
CALLS = 300

_OPTIONS: dict[str, list[Any]] = {
    "queue": ["low", "critical", "a.b"],
    "retry": [True, False, 0, 7],
    "backtrace": [True, 5],
    "tags": [["x"], []],
    "dead": [False],
    "retry_queue": ["slow"],
    "custom": [{"a": [1.5, None]}, 10**30, 1e-7, "é %b"],
}


def _some_options(random: Random) -> dict[str, Any]:
    keys = random.sample(list(_OPTIONS), random.randint(0, 4))
    return {key: random.choice(_OPTIONS[key]) for key in keys}


def _some_args(random: Random) -> list[Any]:
    return [random_value(random, 2) for _ in range(random.randint(0, 4))]


def _pushed(item: dict[str, Any], class_options: dict[str, Any], dialect: Dialect) -> list[list[Any]]:
    """What we would send, in the shape of the peer's answer."""
    payload = normalize(item, dialect=dialect, now=NOW, jid=JID, class_options=class_options)
    if "at" in payload:
        score, member = encode(payload, dialect=dialect, now=NOW)
        return [["zadd", "schedule", [[score, member.decode()]]]]
    text = for_queue(payload, dialect=dialect, now=NOW).decode()
    return [["sadd", "queues", payload["queue"]], ["lpush", f"queue:{payload['queue']}", [text]]]


def test_perform_async_with_and_without_set(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """Class options, then new keys of `set`, then args and class."""
    random = Random(1)
    for _ in range(CALLS):
        options, set_options, args = _some_options(random), _some_options(random), _some_args(random)

        item = call_item("SomeJob", args, dialect=sidekiq_6, set_options=set_options)

        ruby = 'job("SomeJob", question["options"]).set(question["set"]).perform_async(*question["args"])'
        theirs = ruby_peer.push(ruby, now=NOW, options=options, set=set_options, args=args)
        assert _pushed(item, options, sidekiq_6) == theirs


def test_perform_in_with_and_without_set(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """The interval rule, the order of class and args, and the text of the score."""
    random = Random(2)
    for _ in range(CALLS):
        options, args = _some_options(random), _some_args(random)
        set_options = random.choice([None, _some_options(random)])
        interval = random.choice([0, -5, 60, 0.25, 999_999_999, 1e9, 4e9, 1700000000, NOW, 1e17, random.random() * 1e5])

        at = absolute_at(interval, NOW)
        item = call_item("SomeJob", args, dialect=sidekiq_6, set_options=set_options, at=at, is_scheduled=True)

        ruby = 'k = job("SomeJob", question["options"]); k = k.set(question["set"]) if question["set"]'
        ruby += '; k.perform_in(question["interval"], *question["args"])'
        theirs = ruby_peer.push(ruby, now=NOW, options=options, set=set_options, args=args, interval=interval)
        assert _pushed(item, options, sidekiq_6) == theirs


def test_push_by_name(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """Keys that nobody knows, given ids and times, a null retry, an integer `at`."""
    random = Random(3)
    for _ in range(CALLS):
        fields = {"class": "NobodyKnows", "args": _some_args(random), **_some_options(random)}
        extra = {
            "jid": "chosen",
            "created_at": 1.5,
            "enqueued_at": 2.5,
            "retry": None,
            "at": 4000000000,
            "zeta": {"b": 1},
        }
        fields |= {key: extra[key] for key in random.sample(list(extra), random.randint(0, 3))}
        item = dict(random.sample(list(fields.items()), len(fields)))

        theirs = ruby_peer.push('Sidekiq::Client.push(question["item"])', now=NOW, item=item)

        assert _pushed(item, {}, sidekiq_6) == theirs


def test_perform_bulk(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """One payload a job, class before args, at once and scheduled."""
    random = Random(4)
    for _ in range(100):
        options, lists = _some_options(random), [_some_args(random) for _ in range(random.randint(1, 4))]
        at = random.choice([None, 1.8e9])
        item: dict[str, Any] = {"class": "SomeJob", "args": lists}

        normed = normalize(item, dialect=sidekiq_6, now=NOW, jid=JID, class_options=options)
        copies = [bulk_payload(normed, args, jid=JID, dialect=sidekiq_6, now=NOW, at=at) for args in lists]

        ruby = 'Sidekiq::Client.push_bulk("class" => job("SomeJob", question["options"]), "args" => question["lists"]'
        ruby += ', "at" => question["at"])'
        theirs = ruby_peer.push(ruby, now=NOW, options=options, lists=lists, at=at)
        if at is None:
            ours = [for_queue(copy, dialect=sidekiq_6, now=NOW).decode() for copy in copies]
            assert theirs[1] == ["lpush", f"queue:{normed['queue']}", ours]
        else:
            members = [encode(copy, dialect=sidekiq_6, now=NOW) for copy in copies]
            assert theirs == [["zadd", "schedule", [[score, member.decode()] for score, member in members]]]


def test_a_template_renders_what_ruby_pushes(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """The bytes made once and filled in are the bytes of a real push."""
    random = Random(5)
    for _ in range(100):
        options, lists = _some_options(random), [_some_args(random) for _ in range(3)]
        template = PushTemplate("SomeJob", options, sidekiq_6)
        texts = dump_args_many(lists, sidekiq_6.float_text)

        one = template.render(dump_args(lists[0], sidekiq_6.float_text), JID, NOW, NOW).decode()
        bulk = [text.decode() for text in template.bulk(texts, [JID] * 3, NOW, NOW).render()]

        ruby = 'k = job("SomeJob", question["options"]); k.perform_async(*question["lists"][0])'
        ruby += '; k.perform_bulk(question["lists"])'
        theirs = ruby_peer.push(ruby, now=NOW, options=options, lists=lists)
        assert [theirs[1][2], theirs[3][2]] == [[one], bulk]


def _stored(random: Random) -> bytes:
    """A payload as Ruby, we or orphans store it."""
    payload: dict[str, Any] = {"class": "SomeJob", "args": _some_args(random), "jid": JID, "created_at": 1.5}
    payload |= _some_options(random)
    optional = {
        "enqueued_at": 2.5,
        "retry_count": 3,
        "failed_at": 1.25,
        "error_message": "old",
        random_text(random): {},
    }
    payload |= {key: optional[key] for key in random.sample(list(optional), random.randint(0, 4))}
    shuffled = dict(random.sample(list(payload.items()), len(payload)))
    return dump(shuffled, dialect=Dialect.pinned("6.4.1"))


def test_a_due_job_is_pushed_as_ruby_s_poller_pushes_it(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """`retry` and `queue` come to the front, defaults are added, `enqueued_at` is set where it stands."""
    random = Random(6)
    for _ in range(CALLS):
        raw = _stored(random)

        payload = prepare_repush(parse_job(raw), dialect=sidekiq_6, now=NOW, jid=JID)
        text = for_queue(payload, dialect=sidekiq_6, now=NOW)

        ruby = 'Sidekiq::Client.push(Sidekiq.load_json(question["raw"]))'
        theirs = ruby_peer.push(ruby, now=NOW, raw=raw.decode())
        assert theirs == [["sadd", "queues", payload["queue"]], ["lpush", f"queue:{payload['queue']}", [text.decode()]]]


def test_a_failure_is_recorded_as_ruby_records_it(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """First and later failures, with and without a backtrace, with messages of any characters."""
    random = Random(7)
    lines = ["app/x.rb:1:in `x'", "é", 'app/y.rb:2:in "y"']
    for _ in range(CALLS):
        payload = loads(_stored(random))
        payload["retry"] = True
        raw = dump(payload, dialect=sidekiq_6)
        message = random_text(random) * random.choice([1, 1, 1, 5000])

        told = {"error_class": "Some::Error", "backtrace": lines, "queue": "fetched", "now": NOW}
        record_failure(payload, error_message=message, dialect=sidekiq_6, **told)  # type: ignore[arg-type]

        theirs = ruby_peer.fail(raw, message=message, **told)
        assert dump(payload, dialect=sidekiq_6) == theirs


def test_ruby_reads_our_backtraces(ruby_peer: RubyPeer, dialect: Dialect) -> None:
    """Sidekiq 6 reads the text of every release, with line breaks and without."""
    lines = [f"app/job_{number}.py:{number}:in 'é'" for number in range(60)]

    text = compress_backtrace(lines, dialect=dialect)

    assert loads(ruby_peer.ask("backtrace", text.encode())) == lines


def test_a_retry_by_hand_is_free(ruby_peer: RubyPeer, sidekiq_6: Dialect) -> None:
    """The count goes down by one, below zero even, and the rest is a push."""
    raw = b'{"class":"SomeJob","args":[],"jid":"a","created_at":1.5,"retry_count":0}'
    payload = parse_job(raw)

    decrement_for_manual_retry(payload)

    ruby = 'msg = Sidekiq.load_json(question["raw"]); msg["retry_count"] -= 1 if msg["retry_count"]'
    theirs = ruby_peer.push(ruby + "; Sidekiq::Client.push(msg)", now=NOW, raw=raw.decode())
    assert _pushed(payload, {}, sidekiq_6) == theirs
