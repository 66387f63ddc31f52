"""Modules and data that a parent loads before it forks, so that no child has to."""

from importlib import import_module

from sidekiq_py import program
from sidekiq_py.engine.prefork.memory import settle_memory
from sidekiq_py.redis_access.connection.connections import driver_info


def prepare_to_fork() -> None:
    """
    Load what each child would otherwise load for itself, which took two thirds of a child's start.

    The program itself is not loaded here: it may start threads when it is imported, and each child must import its
    newest code.
    """
    program.extensions.load_before_forks()
    # What redis-py says about itself to the server, and the codec that Python loads to resolve a host name for TLS.
    driver_info()
    import_module("encodings.idna")
    settle_memory()
