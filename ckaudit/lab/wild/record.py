"""Draws become pairs of run folders in the cache, each pair trained in a process of its own."""

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING

from ckaudit.lab.record import Done
from ckaudit.lab.wild.pair import HEALTHY, ILL, NOTE, SCALARS, Pair, pair_folder, write_note

if TYPE_CHECKING:
    from ckaudit.lab.wild.draw import Draw
    from ckaudit.lab.zoo import WildSplit

LIBRARIES = ("torch", "transformers", "lightning", "accelerate", "trl")
PRELOADED = ("lightning.pytorch", "accelerate", "transformers.trainer", "ckaudit.lab.wild.draw", "ckaudit.lab.zoo.trainers")


def record_draws(
    split: "WildSplit", seed: int, indices: Iterable[int], cache: Path, *, jobs: int = 2, on_done: Callable[[Done], object]
) -> list[Done]:
    """Train draws and their healthy twins, and keep them.

    Args:
        split: Which families are drawn from.
        seed: Number of the drawing.
        indices: Which draws of it.
        cache: Where recordings are kept.
        jobs: Processes at a time.
        on_done: Called after each draw.
    """
    work = [(split, seed, index, cache) for index in indices]
    return record_each(_record_draw, work, jobs=jobs, on_done=on_done)


def _record_draw(split: "WildSplit", seed: int, index: int, cache: Path) -> tuple[str, Path]:
    from ckaudit.lab.wild.draw import draw

    drawn, folder = draw(split, seed, index), pair_folder(cache, split, seed, index)
    record(drawn, folder)
    return f"{drawn.family}, {drawn.fault}, draw {index}", folder


Work = tuple["WildSplit", int, int, Path]


def record_each(
    train: Callable[..., tuple[str, Path]], work: Sequence[Work], *, jobs: int, on_done: Callable[[Done], object]
) -> list[Done]:
    """Do each piece of work in a process of its own, `jobs` at a time; `train` returns what it was, and its folder."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    done = []
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        for ended in as_completed([pool.submit(_apart, train, piece) for piece in work]):
            done.append(ended.result())
            on_done(done[-1])
    return done


def _apart(train: Callable[..., tuple[str, Path]], work: Work) -> Done:
    import logging
    import os
    import warnings

    os.nice(10)  # many trainings leave the machine usable
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    start, (split, seed, index, _) = process_time(), work
    try:
        name, folder = train(*work)
    except Exception as failure:  # noqa: BLE001  whatever a training dies of is told, and the others go on
        error = f"{type(failure).__name__}: {failure}"
        return Done(name=f"{split}, draw {index}", seed=seed, seconds=process_time() - start, error=error)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return Done(name=name, seed=seed, seconds=process_time() - start, size=size)


def record(drawn: "Draw", folder: Path) -> None:
    """Train one draw and its healthy twin in this process, and note beside them what they are."""
    from ckaudit.lab.zoo.trainers import train
    from ckaudit.recorder.drill.damage import middle_part

    start = process_time()
    shutil.rmtree(folder, ignore_errors=True)
    train(drawn.healthy, folder / HEALTHY, drawn.training_seed)
    try:
        train(drawn.ill, folder / ILL, drawn.training_seed)
    except (ValueError, RuntimeError):  # a training that dies of its fault leaves a record up to there
        if not (folder / ILL / SCALARS).exists():
            raise
    for half in (HEALTHY, ILL):
        shutil.rmtree(folder / f"{half}.out", ignore_errors=True)
    kind, healthy = drawn.kind, drawn.healthy
    note = Pair(
        family=drawn.family,
        fault=drawn.fault,
        truth=kind.truth,
        acceptable=kind.acceptable,
        is_fact=kind.is_fact,
        onset=drawn.amount.onset,
        strength=round(drawn.amount.strength, 3),
        place=middle_part(healthy.model()) if kind.place else "",
        through=healthy.through,
        optimizer=healthy.optimizer,
        schedule=healthy.schedule,
        steps=healthy.steps,
        seconds=round(process_time() - start, 1),
        slow=kind.slow,
    )
    write_note(folder / NOTE, note)
