"""Helpers for objects and classes."""

import threading

from sidekiq_celery.utils.objects import cached_property


def test_threads_that_use_a_property_for_the_first_time_at_once_share_its_value() -> None:
    """Neither waits for the other, which may be waiting for a module that the first one imports."""
    threads = [threading.Thread(target=lambda: seen.append(home.part), daemon=True)]
    seen = []

    class Home:
        @cached_property
        def part(self) -> object:
            if threads:
                other = threads.pop()
                other.start()
                other.join(10)
            return object()

    home = Home()

    assert [home.part] == seen
    assert [home.part] == seen
