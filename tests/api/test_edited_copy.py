"""A copy of a job differs from it where it was told to, and nowhere else."""

import json

import pytest

from sidekiq_py import program
from sidekiq_py.api import JobDraft, JobRecord
from sidekiq_py.errors import JsonParseError, PayloadError
from sidekiq_py.wire.dialect import Dialect

RAW = (
    b'{"retry":true,"queue":"default","class":"HardJob","args":[ 1 ,"a,]\\"b",[2,{"c":[]}],12345678901234567890123],'
    b'"jid":"old","created_at":1.5,"x":{"y": 1.50},"error_class":"E","retry_count":1}'
)


def draft(raw=RAW):
    """A draft of a job."""
    return JobDraft(JobRecord(raw))


def rendered(changes=None, raw=RAW, **options):
    """The bytes of a copy made at second 5."""
    return draft(raw).render(changes or {}, jid="new", now=5.0, dialect=Dialect.pinned("6.4.1", None), **options)


def test_arguments_are_told_as_they_stand():
    """Their own text, brackets and quotes included."""
    assert draft().arguments == ["1", '"a,]\\"b"', '[2,{"c":[]}]', "12345678901234567890123"]


def test_an_argument_is_replaced_where_it_stands():
    """All other bytes of the arguments stay, spaces included."""
    args = rendered({1: '{"new": true}'}).split(b'"args":')[1].split(b',"jid"')[0]

    assert args == b'[ 1 ,{"new": true},[2,{"c":[]}],12345678901234567890123]'


def test_arguments_are_dropped_and_added():
    """The others keep their text."""
    assert json.loads(rendered({0: None, 2: None}, more=["7", "{}"]))["args"] == [
        'a,]"b',
        12345678901234567890123,
        7,
        {},
    ]
    assert json.loads(rendered(raw=b'{"class":"A"}', more=["1"]))["args"] == [1]
    assert json.loads(rendered(raw=b'{"class":"A","args":[]}', more=["1"]))["args"] == [1]


@pytest.mark.parametrize("place", [4, -1, "0"])
def test_an_argument_that_the_job_lacks_is_not_replaced(place):
    """The copy would run with the old arguments."""
    with pytest.raises(PayloadError, match=f"the job has 4 arguments, and none at position {place!r}"):
        rendered({place: "1"})


def test_the_copy_starts_afresh():
    """A new id and new times, and nothing of the failure; foreign keys keep their bytes."""
    copy = rendered()

    assert copy.endswith(b'"jid":"new","created_at":5.0,"x":{"y": 1.50},"enqueued_at":5.0}')
    assert b"error_class" not in copy
    assert b"retry_count" not in copy


def test_another_queue_is_named_in_the_payload():
    """As a push there would."""
    assert json.loads(rendered(queue='lo"w'))["queue"] == 'lo"w'


@pytest.mark.parametrize("text", ["", "{", "nope", '"', "1 2", "\ud800"])
def test_text_that_is_no_json_is_refused(text):
    """The message says which argument it is."""
    with pytest.raises(JsonParseError, match="argument 2 is "):
        rendered({1: text or " "})


@pytest.mark.parametrize(
    "raw",
    [
        b"junk",
        b"[1]",
        b'{"args":[]}',
        b'{"class":"A","args":[],"bid":"b1"}',
        b'{"class":"A","args":[],"sidekiq_py_batch":["b",1]}',
        b'{"class":"A","args":[],"celery":{"report":{"class":"celery.step_ended"}}}',
        b'{"class":"A",/* note */"args":[]}',
    ],
)
def test_what_cannot_be_copied_is_refused(raw):
    """No job, a member of a batch, a step in Ruby, or text whose parts cannot be told for sure."""
    with pytest.raises(PayloadError):
        draft(raw)


def test_a_task_that_belongs_to_no_workflow_is_copied():
    """Its headers go along."""
    raw = b'{"class":"A","args":[],"celery":{"origin":"here"}}'

    assert json.loads(rendered(raw=raw))["celery"] == {"origin": "here"}


def test_the_copy_goes_through_the_client_middleware(pool, redis_client):
    """Which may stop it, or change it."""
    kept = []

    def middleware(_job, payload, _queue, call_next):
        if payload["args"] == [0]:
            return None
        if payload["args"] == [1]:
            payload["seen"] = True
        kept.append(payload["jid"])
        return call_next()

    program.client_middleware.add(middleware)
    one = JobDraft(JobRecord(b'{"class":"A","args":[1.50],"queue":"low"}'))

    assert one.enqueue({0: "0"}, pool=pool) is None
    assert one.enqueue(pool=pool) == kept[0]
    assert one.enqueue({0: "1"}, pool=pool) == kept[1]

    plain, changed = redis_client.lrange("queue:low", 0, -1)[::-1]
    assert b'"args":[1.50]' in plain
    assert json.loads(changed)["seen"] is True
