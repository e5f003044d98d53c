"""One training from recipe to run folder."""

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from ckaudit.contract.files import CHECKPOINT_NAME, MANIFEST_NAME, SCALARS_NAME
from ckaudit.contract.grids import GridEncoding
from ckaudit.errors import UsageError
from ckaudit.lab.recipe import Recipe


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
    """
    need("torch", "torch")
    if recipe.family == "llama":
        need("transformers", "transformers")
    import torch

    from ckaudit.lab.processes import train

    torch.set_num_threads(1)
    plan = recipe.plan if stop is None else replace(recipe.plan, stop=min(stop, recipe.change.plan(recipe.plan).last))
    train(plan, recipe.change, folder, grids=grids, on_step=on_step)


def clear(folder: Path, *, force: bool) -> None:
    """Make room for a run.

    Args:
        folder: Where it is to go.
        force: Delete the files of a run that is there.

    Raises:
        UsageError: If something else is there, or a run that may not be deleted.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="name another: --out runs/x")
    there = sorted(folder.iterdir()) if folder.exists() else []
    if foreign := [file.name for file in there if not _is_of_a_run(file)]:
        raise UsageError(f"{folder} holds {foreign[0]}, which is no part of a run", hint="name another folder: --out runs/x")
    if there and not force:
        raise UsageError(f"{folder} holds a run already", hint="--force replaces it")
    for file in there:
        file.unlink()


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
        raise UsageError(f"the lab trains with {library}, which is not installed", hint=f"pip install 'ckaudit[{extra}]'")
