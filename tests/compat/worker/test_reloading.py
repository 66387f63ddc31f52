"""What `pool_restart` with `reload` does to a worker's tasks."""

import sys
from pathlib import Path

import pytest
from sidekiq_celery import Celery
from sidekiq_celery.worker.reloading import reload_modules


def test_a_module_that_creates_the_app_keeps_its_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Executed again it creates another app, with tasks that this worker would not find."""
    (tmp_path / "single_file.py").write_text(
        "from sidekiq_celery import Celery\n"
        "app = Celery('single_file', set_as_current=False, fixups=[])\n"
        "@app.task\n"
        "def add(x, y):\n"
        "    return x + y\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import single_file  # type: ignore[import-not-found]

    app: Celery = single_file.app
    app.finalize()

    reload_modules(app, ["single_file"], reload=True)

    assert single_file.app is not app
    assert app.tasks["single_file.add"](1, 2) == 3
    assert "single_file has a new app" in caplog.text
    del sys.modules["single_file"]
