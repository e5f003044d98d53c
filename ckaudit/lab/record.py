"""A recipe becomes a run folder, or a recording in the cache: many at a time, each in a process of its own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, REFERENCE_NAME, SCALARS_PATTERN
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.errors import CkauditError, UsageError
from ckaudit.lab.cache import keep
from ckaudit.lab.training_spec import Recipe, recipe
from ckaudit.optional import install_command

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def record(
    recipe: Recipe,
    folder: Path,
    *,
    stop: int | None = None,
    grids: GridEncoding = "q8",
    on_step: Callable[[int], object] = lambda _: None,
) -> None:
    """Train and record into a folder that is empty or not there; what is written holds nothing of the label.

    Each rank has one thread, so that its numbers do not depend on how many processors there are.

    Args:
        recipe: What is trained.
        folder: The run folder.
        stop: Last step, where the plan goes so far; None: as planned.
        grids: How sampled weights and attention are written; "none" is small, and no verdict rests on them.
        on_step: Called after each step.

    Raises:
        UsageError: If a library is missing.
        CkauditError: If nothing could be written.
    """
    need("torch", "torch")
    if recipe.family == "llama":
        need("transformers", "transformers")
    import torch

    from ckaudit.lab.training import train

    torch.set_num_threads(1)
    plan = recipe.plan if stop is None else replace(recipe.plan, stop=min(stop, recipe.change.plan(recipe.plan).last))
    with recorded(folder):
        train(plan, recipe.change, folder, grids=grids, on_step=on_step)


@contextmanager
def recorded(folder: Path) -> Iterator[None]:
    """Check after a training that its recorder, which never stops one, could write into the folder.

    Raises:
        CkauditError: If it could not.
    """
    try:
        yield
    except OSError:  # a change that finishes the files finds none
        _check_written(folder)
        raise
    _check_written(folder)


def _check_written(folder: Path) -> None:
    files = list(folder.iterdir()) if folder.is_dir() else []
    logged = any(SCALARS_PATTERN.match(file.name) and file.stat().st_size for file in files)
    if not logged or folder / MANIFEST_NAME not in files:
        raise CkauditError(f"the training ran, but could not be recorded in {folder}", hint="is the disk full?")


def clear(folder: Path, *, force: bool) -> None:
    """Make room for a run.

    Args:
        folder: Where it is to go.
        force: Delete the files of a run that is there.

    Raises:
        UsageError: If something else is there, a run that may not be deleted, or a place that cannot be written.
    """
    with within_reach(folder):
        if folder.exists() and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder", hint="name another: --out runs/x")
        files = sorted(folder.iterdir()) if folder.exists() else []
        if foreign := [file.name for file in files if not _is_of_a_run(file)]:
            raise UsageError(f"{folder} holds {foreign[0]}, which is no part of a run", hint="name another folder: --out runs/x")
        if files and not force:
            raise UsageError(f"{folder} holds a run already", hint="--force replaces it")
        writable(folder)
        for file in files:
            file.unlink()


def writable(folder: Path, *, option: str = "--out") -> None:
    """Make a folder where there is none, and try a file in it, so that no training is for nothing.

    Args:
        folder: The folder.
        option: What it was named with.

    Raises:
        UsageError: If it cannot be made or written into.
    """
    from tempfile import TemporaryFile

    with within_reach(folder, option=option):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


@contextmanager
def within_reach(folder: Path, aim: str = "write into", *, option: str = "--out") -> Iterator[None]:
    """Raise `UsageError` where the system refuses a folder; `aim` says in words what it was to be used for."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot {aim} {folder}: {error.strerror}", hint=f"name another folder: {option} DIR") from None


def _is_of_a_run(file: Path) -> bool:
    name = file.name
    named = name in (MANIFEST_NAME, REFERENCE_NAME) or bool(CHECKPOINT_NAME.match(name) or SCALARS_PATTERN.match(name))
    return named and file.is_file()


def need(library: str, extra: str) -> None:
    """Raise `UsageError` where a library is not installed.

    Args:
        library: Its name.
        extra: The extra of our package that brings it.
    """
    from importlib.util import find_spec

    if find_spec(library) is None:
        raise UsageError(f"the lab trains with {library}, which is not installed", hint=install_command(extra))


# Many trainings into the cache, each in a process of its own, so that one that fails or is killed costs only itself.
class FinishedTraining(Struct, frozen=True, kw_only=True):
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


class RunningTraining(Struct):
    """A process at work."""

    name: str
    seed: int
    process: Any
    answer: "Connection"
    since: float


def gather(
    recipes: Sequence[Recipe], cache: Path, *, jobs: int = 2, on_done: Callable[[FinishedTraining], object]
) -> list[FinishedTraining]:
    """Train and keep every recipe.

    Args:
        recipes: What is trained.
        cache: Where recordings are kept.
        jobs: Processes at a time.
        on_done: Called after each training.
    """
    from multiprocessing.connection import wait

    waiting, running, done = list(recipes), list[RunningTraining](), list[FinishedTraining]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(_start(waiting.pop(0), cache))
            wait([training.answer for training in running])
            for training in [training for training in running if training.answer.poll()]:
                running.remove(training)
                done.append(_ended(training))
                on_done(done[-1])
    finally:
        for training in running:
            training.process.terminate()
            training.process.join()
    return done


def record_into_cache(name: str, seed: int, cache: Path) -> int:
    """Train one recipe and put it into the cache; return the size of its file in bytes."""
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="ckaudit-lab-") as folder:
        record(recipe(name, seed), Path(folder), grids="none")
        return keep(cache, recipe(name, seed), Path(folder))


def _start(what: Recipe, cache: Path) -> RunningTraining:
    from multiprocessing import get_context

    context = get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(what.name, what.seed, cache, theirs))
    process.start()
    theirs.close()  # so that the end of the process is the end of the pipe
    return RunningTraining(what.name, what.seed, process, ours, monotonic())


def _work(name: str, seed: int, cache: Path, answer: "Connection") -> None:
    """Run in the process of one training."""
    import os
    import signal

    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _leave)
    os.nice(10)  # hours of training leave the machine usable
    try:
        result = (record_into_cache(name, seed, cache), "")
    except Exception as error:  # noqa: BLE001  whatever a training dies of is told, and the others go on
        result = (0, f"{type(error).__name__}: {error}")
    with suppress(BrokenPipeError):  # who asked may be gone; what was trained is kept
        answer.send(result)


def _leave(number: int, _frame: object) -> None:
    """Leave without a word, but not without tidying up."""
    import logging
    import sys

    logging.disable()  # the recorder would tell that its folder has gone
    sys.exit(128 + number)


def _ended(running: RunningTraining) -> FinishedTraining:
    try:
        size, error = running.answer.recv()
    except EOFError:
        size, error = 0, ""
    running.process.join()
    if not size and not error:
        error = f"its process ended with {running.process.exitcode}"
    return FinishedTraining(name=running.name, seed=running.seed, seconds=monotonic() - running.since, size=size, error=error)
