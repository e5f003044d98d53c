"""Many trainings into the cache, each in a process of its own, so that one that fails or is killed costs only itself."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ckaudit.lab.cache import keep
from ckaudit.lab.training_spec import Recipe, recipe

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Done(Struct, frozen=True, kw_only=True):
    """What became of one training.

    Attributes:
        name: Its name.
        seed: Its seed.
        seconds: How long it took.
        size: Of its file in bytes; 0: there is none.
        error: Why there is none; empty: there is.
    """

    name: str
    seed: int
    seconds: float
    size: int = 0
    error: str = ""


class Running(Struct):
    """A process at work."""

    name: str
    seed: int
    process: Any
    answer: "Connection"
    since: float


def gather(recipes: Sequence[Recipe], cache: Path, *, jobs: int = 2, on_done: Callable[[Done], object]) -> list[Done]:
    """Train and keep every recipe.

    Args:
        recipes: What is trained.
        cache: Where recordings are kept.
        jobs: Processes at a time.
        on_done: Called after each training.
    """
    from multiprocessing.connection import wait

    waiting, running, done = list(recipes), list[Running](), list[Done]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), cache))
            wait([each.answer for each in running])
            for each in [each for each in running if each.answer.poll()]:
                running.remove(each)
                done.append(_ended(each))
                on_done(done[-1])
    finally:
        for each in running:
            each.process.terminate()
            each.process.join()
    return done


def train(name: str, seed: int, cache: Path) -> int:
    """Train one recipe and put it into the cache; return the size of its file in bytes."""
    from tempfile import TemporaryDirectory

    from ckaudit.lab.record import record

    with TemporaryDirectory(prefix="ckaudit-lab-") as folder:
        record(recipe(name, seed), Path(folder), grids="none")
        return keep(cache, recipe(name, seed), Path(folder))


def _start(what: Recipe, cache: Path) -> Running:
    from multiprocessing import get_context

    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(what.name, what.seed, cache, theirs))
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return Running(what.name, what.seed, process, ours, monotonic())


def _work(name: str, seed: int, cache: Path, answer: "Connection") -> None:
    """Run in the process of one training."""
    import os
    import signal

    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _leave)
    os.nice(10)  # hours of training leave the machine usable
    try:
        told = (train(name, seed, cache), "")
    except Exception as error:  # noqa: BLE001  whatever a training dies of is told, and the others go on
        told = (0, f"{type(error).__name__}: {error}")
    with suppress(BrokenPipeError):  # who asked may be gone; what was trained is kept
        answer.send(told)


def _leave(number: int, _frame: object) -> None:
    """Leave without a word, but not without tidying up."""
    import logging
    import sys

    logging.disable()  # the recorder would tell that its folder has gone
    sys.exit(128 + number)


def _ended(running: Running) -> Done:
    try:
        size, error = running.answer.recv()
    except EOFError:
        size, error = 0, ""
    running.process.join()
    if not size and not error:
        error = f"its process ended with {running.process.exitcode}"
    return Done(name=running.name, seed=running.seed, seconds=monotonic() - running.since, size=size, error=error)
