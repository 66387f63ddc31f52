"""How many processes `-c auto` starts."""

from pathlib import Path

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.apps.worker import Worker
from sidekiq_celery.worker.pools import cpu_budget, cpu_count


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "100000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "9900000 100000\n"}, None),
        ("0::/pod/box\n", {"pod/cpu.max": "100000 100000\n", "pod/box/cpu.max": "max 100000\n"}, 1),
        ("0::/../box\n", {"cpu.max": "100000 100000\n"}, 1),
        (
            "3:cpu,cpuacct:/\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "100000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            1,
        ),
        ("3:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ("", {}, None),
    ],
    ids=[
        "one",
        "half",
        "none",
        "more",
        "of a parent",
        "seen from outside",
        "version 1",
        "version 1 without",
        "not Linux",
    ],
)
def test_no_more_processes_than_the_quota_of_a_container(
    tmp_path: Path, groups: str, files: dict[str, str], expected: int | None
) -> None:
    """A container that may use one of 64 processors would otherwise start 64. As Celery 5.7, it is rounded up."""
    (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    assert cpu_budget(tmp_path / "groups", tmp_path) == (expected or cpu_count())


@pytest.mark.parametrize(
    ("pool", "concurrency", "counts"),
    [("prefork", "auto", True), ("prefork", "AUTO", True), ("threads", "auto", False), ("prefork", None, False)],
)
def test_the_quota_counts_for_processes_that_are_asked_for_with_auto(
    monkeypatch: pytest.MonkeyPatch, pool: str, concurrency: str | None, counts: bool
) -> None:
    """Threads mostly wait; and a worker without `-c` has as many as before."""
    monkeypatch.setattr("sidekiq_celery.worker.worker.cpu_budget", lambda: 77)
    app = Celery("proj", set_as_current=False)

    worker = Worker(app=app, pool=pool, concurrency=concurrency, quiet=True)

    assert worker.concurrency == (77 if counts else cpu_count())
