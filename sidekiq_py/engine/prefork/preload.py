"""What a parent loads before it forks, so that no child has to."""

from importlib import import_module

from sidekiq_py import program
from sidekiq_py.engine.prefork.memory import settle_memory
from sidekiq_py.redis_access.connection.connections import driver_info


def prepare_to_fork() -> None:
    """
    Load what each child would load for itself: that was two thirds of a child's start. Nothing of the program, which
    may start threads as it is imported, and of which a child has the newest code.
    """
    program.extensions.load_before_forks()
    # redis-py reads its metadata for what it tells the server, and Python this codec for each host name.
    driver_info()
    import_module("encodings.idna")
    settle_memory()
