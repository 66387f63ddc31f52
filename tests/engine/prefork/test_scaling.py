"""The size of a worker that grows and shrinks by itself: the policy, with time handed in."""

from sidekiq_py.engine.prefork.scaling import Load, ScalingPolicy


def test_it_grows_by_what_waits() -> None:
    """At once, up to the most."""
    policy = ScalingPolicy(10, 1)

    assert policy.wanted(Load(size=2, busy=2, waiting=3), now=0) == 5
    assert policy.wanted(Load(size=5, busy=5, waiting=1000), now=1) == 10


def test_busy_processes_with_nothing_behind_them_are_enough() -> None:
    """It grows only if jobs wait."""
    assert ScalingPolicy(10, 1).wanted(Load(size=2, busy=2, waiting=0), now=0) == 2


def test_jobs_that_the_idle_will_take_make_it_no_larger() -> None:
    """They are on their way."""
    assert ScalingPolicy(10, 1).wanted(Load(size=4, busy=1, waiting=2), now=0) == 4


def test_it_shrinks_when_less_was_needed_for_long() -> None:
    """To the most that was needed meanwhile."""
    policy = ScalingPolicy(10, 1, keepalive_seconds=30)
    policy.wanted(Load(8, 8, 0), now=0)

    sizes = [policy.wanted(Load(8, busy, 0), now) for now, busy in [(1, 0), (10, 3), (20, 1), (30.9, 0)]]

    assert sizes == [8, 8, 8, 8]
    assert policy.wanted(Load(8, 0, 0), now=31) == 3


def test_a_full_moment_begins_the_wait_anew() -> None:
    """What is needed now and then stays."""
    policy = ScalingPolicy(4, 1, keepalive_seconds=30)
    policy.wanted(Load(2, 0, 0), now=0)
    policy.wanted(Load(2, 2, 0), now=29)

    assert policy.wanted(Load(2, 0, 0), now=31) == 2
    assert policy.wanted(Load(2, 0, 0), now=60) == 2
    assert policy.wanted(Load(2, 0, 0), now=61) == 1


def test_it_never_shrinks_below_the_least() -> None:
    """Nor below one."""
    policy = ScalingPolicy(4, 2, keepalive_seconds=1)
    policy.wanted(Load(4, 0, 0), now=0)

    assert policy.wanted(Load(4, 0, 0), now=1) == 2
    assert ScalingPolicy(4, 0).least == 1


def test_other_bounds_hold_from_the_next_look_on() -> None:
    """Whatever is needed."""
    policy = ScalingPolicy(4, 1)

    policy.change(most=2)
    assert policy.wanted(Load(4, 4, 9), now=0) == 2
    policy.change(least=3)
    assert (policy.most, policy.least) == (3, 3)
    assert policy.wanted(Load(2, 0, 0), now=1) == 3
