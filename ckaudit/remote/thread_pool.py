"""A pool of threads whose results one thread takes: no more calls are begun than it keeps up with."""

import threading
from collections.abc import Callable, Generator, Sequence
from itertools import islice
from queue import Empty, SimpleQueue
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

AHEAD = 2
"""Calls for each thread that are begun before a result is taken, so that none waits for the one that takes them."""


def map_unordered(call: Callable[[Item], Result], items: Sequence[Item], *, threads: int) -> Generator[tuple[Item, Result]]:
    """Yield each item with what `call` returns of it, in the order in which they come.

    An executor's futures would cost as much as the call where that is a request of a small object. When the iterator is closed,
    the calls that were begun end first.

    Args:
        call: Called in one of the threads.
        items: What it is called with.
        threads: How many there are at most.

    Raises:
        BaseException: What a call raised.
    """
    waiting = iter(items)
    todo: SimpleQueue[Item | None] = SimpleQueue()
    done: SimpleQueue[tuple[Item, Result | None, BaseException | None]] = SimpleQueue()
    pool = [threading.Thread(target=_work, args=(call, todo, done), name="fetch") for _ in range(min(threads, len(items)))]
    for item in islice(waiting, AHEAD * len(pool)):
        todo.put(item)
    try:
        for thread in pool:
            thread.start()
        for _ in items:
            item, result, error = done.get()
            if error is not None:
                raise error
            for following in islice(waiting, 1):
                todo.put(following)
            yield item, result  # type: ignore[misc]  # there is a result where there is no error
    finally:
        _end(pool, todo)


def _work(
    call: Callable[[Item], Result],
    todo: "SimpleQueue[Item | None]",
    done: "SimpleQueue[tuple[Item, Result | None, BaseException | None]]",
) -> None:
    while (item := todo.get()) is not None:
        try:
            done.put((item, call(item), None))
        except BaseException as error:  # noqa: BLE001  raised again by who takes the results
            done.put((item, None, error))


def _end(pool: "Sequence[threading.Thread]", todo: "SimpleQueue[Item | None]") -> None:
    """Have each thread end once it has done what it is at."""
    while True:
        try:
            todo.get_nowait()
        except Empty:
            break
    for _ in pool:
        todo.put(None)
    for thread in pool:
        if thread.ident is not None:  # it was started
            thread.join()
