"""
Where results are kept, under Celery's names and in Celery's bytes.

`base` is the interface that the rest of the code calls; `redis` is the backend that most programs use. kombu is only
imported when the first result is read, or when a result needs kombu's JSON encoder.
"""

from types import ModuleType

from sidekiq_celery._submodules import submodule


def __getattr__(name: str) -> ModuleType:
    return submodule(__name__, name)
