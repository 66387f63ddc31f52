"""Which release's rules are written."""

from itertools import pairwise

import pytest

from sidekiq_py.errors import ConfigError
from sidekiq_py.wire.dialect import NEW_WRAPPER, OLD_WRAPPER, Dialect, FloatText

NOW = 1700000000.1239


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("8", (8, 1, 7)), ("7", (7, 3, 2)), ("6", (6, 4, 1)), ("6.0", (6, 0, 4)), ("6.4", (6, 4, 1)),
        ("7.1", (7, 1, 6)), ("7.1.0", (7, 1, 0)), (" v8.0.9 ", (8, 0, 9)), ("8.0.0.beta2", (8, 0, 0)),
        ("9", (9, 0, 0)), ("8.2", (8, 2, 0)),
    ],
)  # fmt: skip
def test_a_short_version_stands_for_one_release(text: str, version: tuple[int, int, int]) -> None:
    """A bare major for the one that most run, a minor line for its last; what is newer than we know is kept."""
    dialect = Dialect.pinned(text)

    assert dialect.version == version
    assert dialect.readers == (version, version)


@pytest.mark.parametrize("text", ["", "eight", "8.x", "8.1.7.2", "-8", "8 8", "٨", "8" * 5])
def test_nonsense_is_refused_with_advice(text: str) -> None:
    """The message shows the forms that are understood."""
    with pytest.raises(ConfigError, match=r"give a major version such as '8' or a full version such as '7\.3\.2'"):
        Dialect.pinned(text)


@pytest.mark.parametrize("text", ["5", "5.2.10", "4.2.3", "0"])
def test_a_release_before_6_is_refused(text: str) -> None:
    """Its payloads differ in ways that are not written."""
    with pytest.raises(ConfigError, match=r"Sidekiq 6\.0 is the oldest"):
        Dialect.pinned(text)


def test_a_newer_release_is_written_by_the_newest_rules() -> None:
    """Until its own differences are known."""
    newer, newest = Dialect.pinned("9.3"), Dialect.pinned("8.1.7")

    properties = [name for name, value in vars(Dialect).items() if isinstance(value, property)]
    assert len(properties) > 25
    assert newer.rules == newest.version
    assert [getattr(newer, name) for name in properties] == [getattr(newest, name) for name in properties]


@pytest.mark.parametrize(
    ("text", "rules", "unknown"),
    [
        ("9", (8, 1, 7), True), ("8.5.0", (8, 1, 7), True), ("8.1.8", (8, 1, 7), True), ("7.9.0", (7, 3, 2), True),
        ("6.6", (6, 5, 12), True), ("8.1.7", (8, 1, 7), False), ("7.3.11", (7, 3, 11), False), ("6", (6, 4, 1), False),
    ],
)  # fmt: skip
def test_a_release_that_is_not_known_says_so(text: str, rules: tuple[int, int, int], unknown: bool) -> None:
    """Newer than the newest, or of a line that never was; older lines get patches that change no format."""
    dialect = Dialect.pinned(text)

    assert dialect.rules == rules
    assert dialect.unknown_releases() == ((dialect.version,) if unknown else ())


def test_each_live_release_that_is_not_known_is_told() -> None:
    """Also where an older one decides how jobs are written."""
    assert Dialect.detect(["7.3.2", "9.0.1"]).unknown_releases() == ((9, 0, 1),)
    assert Dialect.detect(["7.3.2", "9.0.1"]).rules == (7, 3, 2)
    assert Dialect.detect(["9.0.1"]).rules == (8, 1, 7)
    assert Dialect.unknown().unknown_releases() == Dialect.detect(["8.1.7", None]).unknown_releases() == ()


@pytest.mark.parametrize("given", [8.1, 8, None, (8, 1, 7), b"8"])
def test_a_release_is_given_as_a_text(given: object) -> None:
    """As a number 8.10 would be 8.1."""
    with pytest.raises(ConfigError, match=r"give it as a string, such as '8' or '7\.3\.2'"):
        Dialect.pinned(given)  # type: ignore[arg-type]


def test_the_float_text_follows_the_release_unless_it_is_given() -> None:
    """Debian ships json 3 with Sidekiq 8; others may not."""
    assert [Dialect.pinned(text).float_text for text in ("6", "7", "8")] == [
        FloatText.RUBY,
        FloatText.RUBY,
        FloatText.JSON3,
    ]
    assert Dialect.pinned("8", FloatText.RUBY).float_text is FloatText.RUBY
    assert Dialect.unknown(FloatText.JSON3).float_text is FloatText.JSON3
    assert Dialect.detect(["7.3.2"], FloatText.JSON3).float_text is FloatText.JSON3


def test_times_are_whole_milliseconds_since_8() -> None:
    """The type decides how a reader takes them, so a float stays a float."""
    assert Dialect.pinned("7.3.2").stamp(NOW) == NOW
    assert Dialect.pinned("8.0.0").stamp(NOW) == 1700000000123
    assert type(Dialect.pinned("8").stamp(1.0)) is int
    assert Dialect.pinned("8").millisecond_times


def test_an_unknown_reader_gets_what_most_releases_read_rightly() -> None:
    """Float seconds, `Float#to_s`, the old wrapper, strict base64, and both places for what moved."""
    dialect = Dialect.unknown()

    assert dialect.stamp(NOW) == NOW
    assert dialect.float_text is FloatText.RUBY
    assert dialect.active_job_wrapper == OLD_WRAPPER
    assert dialect.strict_base64
    assert dialect.args_before_class
    assert dialect.concurrency_in_info
    assert dialect.concurrency_field
    assert dialect.work_suffixes == ("work", "workers")


def test_the_releases_of_live_processes_are_taken() -> None:
    """All the same: that one. None alive: unknown."""
    assert Dialect.detect(["8.1.7", "8.1.7"]) == Dialect.pinned("8.1.7")
    assert Dialect.detect([]) == Dialect.unknown()
    assert Dialect.detect(["made up", ""]) == Dialect.unknown()
    assert Dialect.detect(["made up", "7.3.2"]) == Dialect.pinned("7.3.2")


def test_of_several_releases_the_oldest_one_s_rules_are_written() -> None:
    """A newer release reads what an older one wrote; an older one misreads milliseconds."""
    dialect = Dialect.detect(["8.1.7", None, "7.3.2"])

    assert dialect.version == (6, 4, 1)
    assert not dialect.millisecond_times
    assert dialect.work_suffixes == ("work", "workers")
    assert dialect.concurrency_in_info
    assert dialect.concurrency_field


def test_a_process_without_a_version_may_be_any_before_7_0_2() -> None:
    """The payloads of 6.4.1 suit them all; 6.5 looks for running jobs where 6.4.1 does not."""
    dialect = Dialect.detect([None])

    assert dialect.version == (6, 4, 1)
    assert dialect.work_suffixes == ("work", "workers")
    assert dialect.unknown_releases() == ()


def test_a_process_older_than_6_counts_as_6_0() -> None:
    """The oldest rules that are written."""
    assert Dialect.detect(["5.2.10"]).version == (6, 0, 0)


# The last patch of each line.
LAST_PATCHES = {
    "6.0": 7, "6.1": 3, "6.2": 2, "6.3": 1, "6.4": 2, "6.5": 12,
    "7.0": 9, "7.1": 6, "7.2": 4, "7.3": 10, "8.0": 10, "8.1": 7,
}  # fmt: skip

# What says which release it is, and no difference.
NO_DIFFERENCE = {"rules"}

# Property, last release with the first value, first release with the second. Source: Sidekiq's tags.
TURNS = [
    ("defaults_first", "6.0.3", False, "6.0.4", True),
    ("compresses_backtrace", "6.0.1", False, "6.0.2", True),
    ("work_payload_is_text", "6.0.1", False, "6.0.2", True),
    ("has_rss", "6.1.2", False, "6.1.3", True),
    ("has_rtt", "6.1.3", False, "6.2.0", True),
    ("jitter", "6.2.1", "rand30", "6.2.2", "rand_times"),
    ("custom_delay_jitter", "6.2.1", False, "6.2.2", True),
    ("args_before_class", "6.3.1", False, "6.4.0", True),
    ("bulk_stamps_first", "6.4.0", True, "6.4.1", False),
    ("bulk_moves_jid", "6.4.1", False, "6.4.2", True),
    ("work_suffixes", "6.4.1", ("workers",), "6.4.2", ("work",)),
    ("metrics_generation", "6.5.1", None, "6.5.2", 7),
    ("beat_seconds", "6.5.12", 5, "7.0.0", 10),
    ("knows_namespaces", "6.5.12", True, "7.0.0", False),
    ("has_older_status_gem", "6.5.12", True, "7.0.0", False),
    ("info_has_weights", "7.0.1", False, "7.0.2", True),
    ("info_has_version", "7.0.1", False, "7.0.2", True),
    ("info_has_embedded", "7.0.2", False, "7.0.3", True),
    ("scheduled_drops_enqueued_at", "7.1.1", False, "7.1.2", True),
    ("has_retry_for", "7.1.2", False, "7.1.3", True),
    ("exhausted_may_discard", "7.1.6", False, "7.2.0", True),
    ("strict_base64", "7.2.0", False, "7.2.1", True),
    ("millisecond_times", "7.3.10", False, "8.0.0", True),
    ("active_job_wrapper", "7.3.10", OLD_WRAPPER, "8.0.0", NEW_WRAPPER),
    ("current_attributes_as_pairs", "7.3.10", False, "8.0.0", True),
    ("iteration_keeps_first_ttl", "7.3.10", False, "8.0.0", True),
    ("jitter", "7.3.10", "rand_times", "8.0.0", "rand_range"),
    ("metrics_generation", "7.3.10", 7, "8.0.0", 8),
    ("discard_runs_death_handlers", "8.0.6", False, "8.0.7", True),
    ("stamps_discarded_at", "8.0.7", False, "8.0.8", True),
    ("info_has_capsules", "8.0.8", False, "8.0.9", True),
    ("doubles_large_poll_interval", "8.0.9", False, "8.0.10", True),
    ("retry_for_exclusive", "8.0.10", False, "8.1.0", True),
    ("scheduled_bulk_slice", "8.1.1", 1000, "8.1.2", 100),
    ("concurrency_in_info", "8.1.1", True, "8.1.2", False),
    ("concurrency_field", "8.1.1", False, "8.1.2", True),
]


@pytest.mark.parametrize(("name", "last", "before", "first", "after"), TURNS)
def test_each_difference_begins_with_its_release(
    name: str, last: str, before: object, first: str, after: object
) -> None:
    """The release before still writes the old way."""
    assert getattr(Dialect.pinned(last), name) == before
    assert getattr(Dialect.pinned(first), name) == after


def test_there_are_no_other_differences() -> None:
    """From one release to the next everything else stays; so the table above is whole."""
    releases = [f"{line}.{patch}" for line, last in LAST_PATCHES.items() for patch in range(last + 1)]
    names = {name for name, value in vars(Dialect).items() if isinstance(value, property)} - NO_DIFFERENCE
    found = {
        (name, before, after)
        for before, after in pairwise(releases)
        for name in names
        if getattr(Dialect.pinned(before), name) != getattr(Dialect.pinned(after), name)
    }

    assert found == {(name, last, first) for name, last, _, first, _ in TURNS}
