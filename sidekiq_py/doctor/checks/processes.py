"""Which processes share this Redis, and which releases do they write for?"""

from collections.abc import Iterator

from sidekiq_py.doctor.facts import Facts
from sidekiq_py.doctor.finding import Finding, Level, listed, note, ok, problem, verb, warning
from sidekiq_py.doctor.fleet import Worker, releases
from sidekiq_py.logs import counted
from sidekiq_py.wire.dialect import NEWEST, OLDEST, Dialect, version_text


def present(facts: Facts) -> Iterator[Finding]:
    """The languages and releases that are running."""
    fleet = facts.fleet
    if not fleet.workers:
        yield note("No process is running on this Redis.", "Start one: sidekiq-py worker -r myapp.jobs, or Ruby's.")
    else:
        parts = []
        if fleet.ruby:
            parts.append(f"Ruby with Sidekiq {releases(fleet.ruby)}")
        if fleet.python:
            parts.append(f"Python, writing for Sidekiq {releases(fleet.python)}")
        yield note(f"Running: {'; '.join(parts)}.", subjects=(worker.identity for worker in fleet.workers))
    quiet = [worker.identity for worker in fleet.workers if worker.is_quiet]
    if quiet:
        yield note(f"{counted(len(quiet), 'process takes', 'processes take')} no new jobs: {listed(quiet)}.", "", quiet)
    if fleet.silent:
        yield ok(f"{counted(len(fleet.silent), 'process', 'processes')} ended and will be cleared from the list.")


def mixed_releases(facts: Facts) -> Iterator[Finding]:
    """What the running releases misread of each other."""
    ruby = sorted(facts.fleet.ruby, key=lambda worker: worker.dialect.version)
    if not ruby:
        yield ok("No Ruby process is alive.")
        return
    yield from _unknown_releases(ruby)
    oldest, newest = ruby[0].dialect, ruby[-1].dialect
    consequences = _consequences(oldest, newest)
    if oldest.version == newest.version:
        yield ok(f"One release of Sidekiq: {ruby[0].release}.")
    elif not consequences:
        yield note(f"Ruby processes run several releases of Sidekiq, which understand each other: {releases(ruby)}.")
    else:
        yield warning(
            f"Ruby processes run several releases of Sidekiq: {releases(ruby)}. {' '.join(consequences)}",
            "Finish the upgrade. Until then, have each queue served by the newest release that pushes to it.",
            (worker.identity for worker in ruby),
        )


def dialect(facts: Facts) -> Iterator[Finding]:
    """The release that a Python program on this machine writes for, and why."""
    ruby = facts.fleet.ruby
    detected = Dialect.detect([worker.info.version for worker in ruby]) if ruby else None
    if facts.pinned is not None:
        yield _pinned(facts.pinned, detected, ruby)
    elif detected is not None:
        oldest = [worker for worker in ruby if max(worker.dialect.version, OLDEST) == detected.version]
        why = "the release of" if oldest == ruby else "the oldest of several releases, that of"
        yield note(
            f"A Python program writes for Sidekiq {_text(detected)} ({_times(detected)}): {why} "
            f"{listed(worker.identity for worker in oldest)}."
        )
    else:
        chosen = Dialect.unknown()
        yield note(
            f"A Python program writes a format that most releases read correctly ({_times(chosen)}, order of keys of "
            f"{_text(chosen)}): no Ruby process is alive to show its release, and sidekiq_version is not set.",
            "Set it if Ruby only enqueues or is not running yet: sidekiq.configure(sidekiq_version=…).",
        )


def writers(facts: Facts) -> Iterator[Finding]:
    """Do the Python processes write for the release that Ruby runs?"""
    ruby, python = facts.fleet.ruby, facts.fleet.python
    if not (ruby and python):
        yield ok("Only one of the two languages is running, or neither.")
        return
    expected = Dialect.detect([worker.info.version for worker in ruby])
    wrong = [worker for worker in python if worker.dialect.version != expected.version]
    names = [worker.identity for worker in wrong]
    if not wrong:
        yield ok(f"Every Python process writes for Sidekiq {_text(expected)}.")
        return
    seen = (
        f"{counted(len(wrong), 'Python process writes', 'Python processes write')} for Sidekiq {releases(wrong)}, but "
        f"Ruby runs {releases(ruby)}: {listed(names)}."
    )
    advice = "Set sidekiq_version to the oldest release that Ruby runs, or leave it unset; then restart them."
    if any(worker.dialect.millisecond_times for worker in wrong) and not expected.millisecond_times:
        wrongly = "They write times in milliseconds, which those Ruby processes read as seconds."
        yield problem(f"{seen} {wrongly}", advice, names)
    else:
        yield warning(seen, advice, names)


def _unknown_releases(ruby: list[Worker]) -> Iterator[Finding]:
    newer = [worker for worker in ruby if worker.dialect.version > NEWEST]
    if newer:
        newest = version_text(NEWEST)
        yield warning(
            f"Sidekiq {releases(newer)} is newer than {newest}, the newest release that this library knows. "
            f"Python treats {verb(len(newer), 'it', 'them')} like {newest}.",
            "Look for a newer sidekiq_py, or postpone the upgrade of Ruby.",
            (worker.identity for worker in newer),
        )


def _consequences(oldest: Dialect, newest: Dialect) -> list[str]:
    """What breaks between two releases; empty if nothing does."""
    found = []
    if oldest.millisecond_times != newest.millisecond_times:
        found.append(
            f"Jobs that {_text(newest)} pushes have times in milliseconds and (Active Job) another wrapper class: "
            f"{_text(oldest)} reads the times as seconds, so that latencies are wrong and `retry_for` never ends."
        )
    if oldest.metrics_generation != newest.metrics_generation:
        found.append("Each Metrics page shows only its own release's jobs.")
    if oldest.concurrency_field != newest.concurrency_field:
        found.append("Each Busy page shows 0 threads for the other's processes.")
    if oldest.work_suffixes != newest.work_suffixes:
        found.append("Each Busy page shows only its own release's running jobs.")
    return found


def _pinned(pinned: Dialect, detected: Dialect | None, ruby: list[Worker]) -> Finding:
    seen = f"This program writes for Sidekiq {_text(pinned)} ({_times(pinned)}), because sidekiq_version is set"
    if detected is None:
        return note(f"{seen}. No Ruby process is alive.")
    # Releases before 7.0.2 do not say which they are.
    is_silent = any(worker.info.version is None for worker in ruby)
    if detected.version == pinned.version or (is_silent and not pinned.info_has_version):
        return note(f"{seen}, which is what Ruby runs.")
    level = Level.WARNING
    if pinned.millisecond_times and not detected.millisecond_times:
        level = Level.PROBLEM
    return Finding(
        level,
        f"{seen}, but Ruby runs {releases(ruby)}.",
        f"Set sidekiq_version to {_text(detected)}, or leave it unset to have it detected.",
        tuple(worker.identity for worker in ruby),
    )


def _text(chosen: Dialect) -> str:
    return version_text(chosen.version)


def _times(chosen: Dialect) -> str:
    return "times in whole milliseconds" if chosen.millisecond_times else "times in float seconds"
