"""The real Celery for the real Flower, whose commands wait longer for replies than for one second."""

from typing import Any

from celery import Celery
from celery.app.control import Control

PATIENCE_SECONDS = 60.0


class PatientControl(Control):
    """A worker on a busy machine may take longer to reply. Who asks one worker waits no longer than that takes."""

    def broadcast(self, *words: Any, **options: Any) -> Any:
        """Send a command."""
        return super().broadcast(*words, **{"timeout": PATIENCE_SECONDS, **options})


app = Celery("flower", control=PatientControl)
