"""A stack of its own for each thread and each coroutine."""

import asyncio
import threading

from sidekiq_celery.utils.threads import LocalStack


def test_what_was_pushed_last_is_on_top():
    """Nothing is there in the beginning and in the end."""
    stack: LocalStack[int] = LocalStack()
    assert (stack.top, stack.pop(), len(stack), bool(stack)) == (None, None, 0, True)

    assert stack.push(1) == [1]
    stack.push(2)

    assert (stack.top, stack.stack, stack.pop(), stack.top) == (2, [1, 2], 2, 1)


def test_threads_do_not_see_each_other():
    """Each begins with nothing."""
    stack: LocalStack[int] = LocalStack()
    stack.push(1)
    seen = []

    thread = threading.Thread(target=lambda: seen.append(stack.top))
    thread.start()
    thread.join()

    assert (seen, stack.top) == ([None], 1)


def test_coroutines_do_not_see_each_other():
    """Though they share a thread, and take turns in it."""
    stack: LocalStack[int] = LocalStack()

    async def run(number):
        stack.push(number)
        await asyncio.sleep(0)
        return stack.pop(), stack.top

    async def both():
        return await asyncio.gather(run(1), run(2))

    assert asyncio.run(both()) == [(1, None), (2, None)]
    assert stack.top is None
