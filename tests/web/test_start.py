"""The start of the dashboard."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("starlette")

PROGRAM = "from sidekiq_py.web import asgi_app; asgi_app(authorize=lambda request: None)"


def test_it_starts_where_python_reads_files_as_ascii() -> None:
    """As an old locale tells it to: the templates, also those of the extensions, are UTF-8."""
    ascii_only = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}

    subprocess.run([sys.executable, "-c", PROGRAM], env={**os.environ, **ascii_only}, check=True)
