"""The standard streams of a command line, which a daemon or a cron job may start without them."""

import os
import sys

_STANDARD_ERROR = 2


def open_missing_streams() -> None:
    """
    Discard what is written to a standard stream that was closed when the process started. Such an input is empty.

    Otherwise a pipe or a connection would get its descriptor, to which a library in C may print an error, and a program
    that a job starts could not print at all.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    # A library may have taken one of these descriptors while Python was starting, so the streams have others.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 — it stays open
