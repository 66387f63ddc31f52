"""Names of threads and of slots on the event loop."""

import os
import threading

import pytest

from sidekiq_py import tid


def test_base_36_is_that_of_ruby() -> None:
    """`255.to_s(36)` is "73"."""
    assert [tid.base36(number) for number in (0, 35, 36, 255, 1_700_000_000)] == ["0", "z", "10", "73", "s44we8"]


def test_a_thread_keeps_its_name_and_shares_it_with_nobody() -> None:
    """The work hash has a field for each."""
    names: list[str] = []
    gate = threading.Barrier(4)

    def note() -> None:
        gate.wait()
        names.append(tid.current())
        assert tid.current() == tid.of_thread(threading.get_ident())
        gate.wait()

    threads = [threading.Thread(target=note) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(names)) == 4


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_has_another_name() -> None:
    """Parent and child have the same thread at the same address; their names differ by the process id."""
    reader, writer = os.pipe()
    own = tid.current()

    child = os.fork()
    if child == 0:
        os.write(writer, tid.current().encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)

    theirs = os.read(reader, 100).decode()
    os.close(reader)
    assert theirs
    assert theirs != own
