"""The screen breaks a job's bytes into lines, and changes nothing else."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidekiq_py.demo.payload_view import Part, lines, members, parts

JOB = '{"class":"A","args":[1.0,"\\u00e9",{"b":[]}],"jid":"x"}'
FAILED = '{"class":"A","args":[1.0,"\\u00e9",{"b":[]}],"jid":"y","error_message":"no, no"}'
RECORDED = Path(__file__).parents[2] / "ruby_fixtures" / "payloads" / "6.4.1"


def test_members_keep_the_text_of_their_values() -> None:
    """A float stays a float, and an escape stays an escape."""
    assert members(JOB) == {"class": '"A"', "args": '[1.0,"\\u00e9",{"b":[]}]', "jid": '"x"'}


def test_what_is_new_and_what_changed_is_marked() -> None:
    """Compared with the earlier payload."""
    marked = {part.text.partition(":")[0]: part.mark for part in parts(FAILED, before=JOB)}

    assert marked == {'{"class"': "kept", '"args"': "kept", '"jid"': "changed", '"error_message"': "new"}


def test_without_a_payload_before_nothing_is_marked() -> None:
    """As when a job is shown for the first time."""
    assert {part.mark for part in parts(FAILED)} == {"kept"}


def test_a_line_holds_parts_of_one_mark() -> None:
    """So that the sign in the margin applies to the whole line."""
    shown = list(lines(parts(FAILED, before=JOB), width=60))

    assert [mark for mark, _ in shown] == ["kept", "changed", "new"]
    assert shown[1][1] == ' "jid":"y",'


def test_a_long_value_is_broken_after_a_comma() -> None:
    """A number that is cut in two looks like two numbers."""
    [(_, first), (_, second)] = lines([Part("[1000000,2000000,3000000]", "kept")], width=20)

    assert (first, second) == ("[1000000,2000000,", " 3000000]")


@pytest.mark.parametrize("situation", ["perform_async_texts", "first_failure_backtrace", "perform_async_floats"])
def test_the_lines_of_a_recorded_payload_are_its_bytes(situation: str) -> None:
    """Joined without the space in front, they are what Ruby wrote."""
    for payload in json.loads((RECORDED / f"{situation}.json").read_text())["members"]:
        shown = [text for _, text in lines(parts(payload), width=70)]

        assert all(len(text) <= 70 for text in shown)
        assert shown[0] + "".join(text[1:] for text in shown[1:]) == payload


@given(st.dictionaries(st.text(), st.recursive(st.integers() | st.text() | st.none(), st.lists, max_leaves=5)))
def test_the_parts_of_any_object_are_the_object(job: dict[str, object]) -> None:
    """Whatever a payload contains, nothing is lost between the parts."""
    payload = json.dumps(job)

    assert "".join(part.text for part in parts(payload)) == payload
    assert {name: json.loads(text) for name, text in members(payload).items()} == job
