"""One training from recipe to run folder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from ckaudit.contract.io.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_NAME
from ckaudit.contract.io.grids import GridEncoding
from ckaudit.errors import CkauditError, UsageError
from ckaudit.lab.training_spec import Recipe
from ckaudit.optional import install_command


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

    from ckaudit.lab.processes import train

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
    there = list(folder.iterdir()) if folder.is_dir() else []
    logged = any(SCALARS_NAME.match(file.name) and file.stat().st_size for file in there)
    if not logged or folder / MANIFEST_NAME not in there:
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
        there = sorted(folder.iterdir()) if folder.exists() else []
        if foreign := [file.name for file in there if not _is_of_a_run(file)]:
            raise UsageError(f"{folder} holds {foreign[0]}, which is no part of a run", hint="name another folder: --out runs/x")
        if there and not force:
            raise UsageError(f"{folder} holds a run already", hint="--force replaces it")
        writable(folder)
        for file in there:
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
    named = name in (MANIFEST_NAME, "reference.npz") or bool(CHECKPOINT_NAME.match(name) or SCALARS_NAME.match(name))
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
