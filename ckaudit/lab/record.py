"""Records recipes to run folders, or to the cache: many at a time, each in its own process."""

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
    """Train and record into an empty or new folder; the files contain nothing of the label.

    Each rank has one thread, so that its numbers do not depend on the number of CPUs.

    Args:
        recipe: The training.
        folder: The run folder.
        stop: Last step, if the plan goes that far; None: as planned.
        grids: Encoding of sampled weights and attention; "none" saves space, and no verdict depends on them.
        on_step: Called after each step.

    Raises:
        UsageError: If a library is missing.
        CkauditError: If the recording could not be written.
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
    """Check after a training that its recorder, which never raises, could write to the folder.

    Raises:
        CkauditError: If it could not.
    """
    try:
        yield
    except OSError:  # a change to the finished files finds none
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
        folder: The run folder.
        force: Delete the files of an existing run.

    Raises:
        UsageError: If the folder contains something else or a run that may not be deleted, or is not writable.
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
    """Create a folder if necessary, and test that it is writable, so that no training is in vain.

    Args:
        folder: The folder.
        option: Option that named it.

    Raises:
        UsageError: If it cannot be created or written to.
    """
    from tempfile import TemporaryFile

    with within_reach(folder, option=option):
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass


@contextmanager
def within_reach(folder: Path, aim: str = "write into", *, option: str = "--out") -> Iterator[None]:
    """Raise `UsageError` if the system refuses a folder; `aim` describes its intended use."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot {aim} {folder}: {error.strerror}", hint=f"name another folder: {option} DIR") from None


def _is_of_a_run(file: Path) -> bool:
    name = file.name
    named = name in (MANIFEST_NAME, REFERENCE_NAME) or bool(CHECKPOINT_NAME.match(name) or SCALARS_PATTERN.match(name))
    return named and file.is_file()


def need(library: str, extra: str) -> None:
    """Raise `UsageError` if a library is not installed.

    Args:
        library: Name of the library.
        extra: The extra of our package that installs it.
    """
    from importlib.util import find_spec

    if find_spec(library) is None:
        raise UsageError(f"the lab trains with {library}, which is not installed", hint=install_command(extra))


# Many trainings into the cache, each in its own process, so that one that fails or is killed costs only itself.
class FinishedTraining(Struct, frozen=True, kw_only=True):
    """The result of one training.

    Attributes:
        name: Its name.
        seed: Its seed.
        seconds: Duration of the training.
        size: Size of its file in bytes; 0: there is none.
        error: Why there is none; empty: there is.
    """

    name: str
    seed: int
    seconds: float
    size: int = 0
    error: str = ""


class RunningTraining(Struct):
    """A running process."""

    name: str
    seed: int
    process: Any
    answer: "Connection"
    since: float


def gather(
    recipes: Sequence[Recipe], cache: Path, *, jobs: int = 2, on_done: Callable[[FinishedTraining], object]
) -> list[FinishedTraining]:
    """Train every recipe, and keep the recordings.

    Args:
        recipes: The trainings.
        cache: Folder of recordings.
        jobs: Number of processes.
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
    theirs.close()  # so that the pipe ends with the process
    return RunningTraining(what.name, what.seed, process, ours, monotonic())


def _work(name: str, seed: int, cache: Path, answer: "Connection") -> None:
    """Run in the process of one training."""
    import os
    import signal

    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, _leave)
    os.nice(10)  # hours of training should leave the machine usable
    try:
        result = (record_into_cache(name, seed, cache), "")
    except Exception as error:  # noqa: BLE001  whatever a training dies of is told, and the others go on
        result = (0, f"{type(error).__name__}: {error}")
    with suppress(BrokenPipeError):  # the parent may be gone; the recording is kept
        answer.send(result)


def _leave(number: int, _frame: object) -> None:
    """Exit silently, but clean up."""
    import logging
    import sys

    logging.disable()  # the recorder would report that its folder has vanished
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
