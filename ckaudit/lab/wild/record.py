"""Recording of draws and groups of trainings, each in its own process; and the trainings of a group.

A draw is a training with a fault, and its healthy twin. A group is good runs that differ by chance only, and runs with one change
each.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor, as_completed
from pathlib import Path
from random import Random
from time import process_time

import msgspec
import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import nn

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.lab.record import FinishedTraining
from ckaudit.lab.wild.draw import Draw, draw, vary
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.groups import NOTE as GROUP_NOTE
from ckaudit.lab.wild.groups import GroupMember, GroupNote, group_folder
from ckaudit.lab.wild.pair import HEALTHY, ILL, NOTE, PairNote, pair_folder, write_note
from ckaudit.lab.zoo import FAMILIES, WildSplit, families_of
from ckaudit.lab.zoo.recipe import Recipe, Resume
from ckaudit.lab.zoo.trainers import train
from ckaudit.recorder.drill.damage import DrillStrength, middle_part

Work = tuple[WildSplit, int, int, Path]
PRELOADED = ("lightning.pytorch", "accelerate", "transformers.trainer", "ckaudit.lab.wild.draw", "ckaudit.lab.zoo.trainers")

GOOD = 6  # one to be judged and five to judge it by, in turn
STEPS = (60, 80, 120)
SLOW = ("bart", "bert", "bert_by_sgd", "deberta", "gemma", "lora", "mamba", "swin", "unet", "whisper")
"""Families whose step takes more than some 60 ms of a core; a group is a dozen trainings."""

SETTINGS: Mapping[str, str] = {
    "learning_rate": "lr",
    **{
        name: name
        for name in (
            "optimizer",
            "momentum",
            "weight_decay",
            "eps",
            "schedule",
            "warmup",
            "clip",
            "batch",
            "accumulate",
            "precision",
        )
    },
}
"""Settings that a user would record in a configuration, and the field of a recipe that has them."""

RATES: Mapping[str, float] = {"rate_x3": 3.0, "rate_x0.25": 0.25}
"""Changes of the learning rate; within so few steps a higher one mostly helps."""


def record_draws(
    split: WildSplit,
    seed: int,
    indices: Iterable[int],
    cache: Path,
    *,
    jobs: int = 2,
    on_done: Callable[[FinishedTraining], object],
) -> list[FinishedTraining]:
    """Train draws and their healthy twins, and keep them.

    Args:
        split: Split of the families.
        seed: Number of the drawing.
        indices: Indices of the draws.
        cache: Folder of recordings.
        jobs: Number of processes.
        on_done: Called after each draw.
    """
    work = [(split, seed, index, cache) for index in indices]
    return _record_each(_record_draw, work, jobs=jobs, on_done=on_done)


def _record_draw(split: WildSplit, seed: int, index: int, cache: Path) -> tuple[str, Path]:
    drawn, folder = draw(split, seed, index), pair_folder(cache, split, seed, index)
    record(drawn, folder)
    return f"{drawn.family}, {drawn.fault}, draw {index}", folder


def record(drawn: Draw, folder: Path) -> None:
    """Train one draw and its healthy twin in this process, and write a note beside them."""
    start = process_time()
    shutil.rmtree(folder, ignore_errors=True)
    train(drawn.healthy, folder / HEALTHY, drawn.training_seed)
    try:
        train(drawn.ill, folder / ILL, drawn.training_seed)
    except (ValueError, RuntimeError):  # a training that fails because of its fault leaves a record up to that point
        if not (folder / ILL / SCALARS_NAME).exists():
            raise
    for half in (HEALTHY, ILL):
        shutil.rmtree(folder / f"{half}.out", ignore_errors=True)
    kind, healthy = drawn.kind, drawn.healthy
    note = PairNote(
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


# Groups: their trainings, and their storage.
class MemberPlan(Struct, frozen=True, kw_only=True):
    """The plan of one training in a group."""

    member: GroupMember
    recipe: Recipe
    seed: int
    order: int


def draw_group(split: WildSplit, seed: int, index: int) -> tuple[GroupNote, list[MemberPlan]]:
    """Return the note of a group, and its trainings; they depend on these three arguments only.

    Families come in turn, each once before any is repeated. Seeds decide weights, order and dropout; the rows are the same.
    """
    source = Random(f"{split}/{seed}/{index}/group")
    families = [name for name in families_of(split) if name not in SLOW]
    around, place = divmod(index, len(families))
    family = Random(f"{split}/{seed}/groups/{around}").sample(families, len(families))[place]
    varied = vary(FAMILIES[family], source)
    steps = source.choice(STEPS)
    healthy = replace(varied, steps=steps, warmup=min(varied.warmup, steps // 8), every=min(varied.every, steps // 4))
    first = 500_000 + 10_000 * seed + 100 * index
    plans = [
        MemberPlan(member=GroupMember(name=f"good_{place}", kind="good"), recipe=healthy, seed=first + place, order=first + place)
        for place in range(GOOD)
    ]
    plans.append(MemberPlan(member=GroupMember(name="order", kind="order"), recipe=healthy, seed=first, order=first + 50))
    others = [("rounding", "rounding", "", 0, replace(healthy, model=lambda: round_otherwise(healthy.model())))]
    if healthy.through in ("loop", "accelerate"):
        others.append(("resumed", "resumed", "", 0, replace(healthy, resume=Resume(steps // 2))))
    others += [(name, "change", name, onset, recipe) for name, onset, recipe in _changes(healthy, source)]
    for name, kind, change, onset, recipe in others:
        member = msgspec.convert({"name": name, "kind": kind, "change": change, "onset": onset}, GroupMember)
        plans.append(MemberPlan(member=member, recipe=recipe, seed=first, order=first))
    group = GroupNote(
        family=family,
        through=healthy.through,
        optimizer=healthy.optimizer,
        schedule=healthy.schedule,
        steps=steps,
        members=tuple(plan.member for plan in plans),
    )
    return group, plans


def _changes(healthy: Recipe, source: Random) -> Iterator[tuple[str, int, Recipe]]:
    """Yield name, first step and recipe of each change: two of the learning rate, a fault from the start, and a late one."""
    for name, factor in RATES.items():
        yield name, 1, replace(healthy, lr=healthy.lr * factor)
    own_loop = healthy.through in ("loop", "accelerate")
    for is_sudden in (False, True):
        names = [name for name, fault in FAULTS.items() if fault.sudden == is_sudden and (own_loop or not fault.loop)]
        name = next(name for name in source.sample(names, len(names)) if FAULTS[name].suits(healthy))
        onset = round(healthy.steps * source.uniform(0.3, 0.7)) if is_sudden else 1
        yield name, onset, FAULTS[name].done(healthy, DrillStrength(onset, source.random()))


@torch.no_grad()
def round_otherwise(model: nn.Module) -> nn.Module:
    """Change half of the weights by one bit, like another machine's order of additions, and return the model."""
    source = torch.Generator().manual_seed(1)
    for weight in model.parameters():
        moved = torch.nextafter(weight, torch.full_like(weight, torch.inf))
        weight.copy_(torch.where(torch.rand(weight.shape, generator=source) < 0.5, moved, weight))
    return model


def with_settings(recipe: Recipe) -> Recipe:
    """Return a recipe that records its settings, as the Trainer of transformers does by itself."""
    if recipe.through == "transformers":
        return recipe
    return replace(recipe, facts={**recipe.facts, "config": {name: getattr(recipe, field) for name, field in SETTINGS.items()}})


def record_groups(
    split: WildSplit,
    seed: int,
    indices: Iterable[int],
    cache: Path,
    *,
    jobs: int = 2,
    fresh: bool = False,
    on_done: Callable[[FinishedTraining], object],
) -> list[FinishedTraining]:
    """Train groups and keep them; an interrupted group is continued.

    Args:
        split: Split of the families.
        seed: Number of the drawing.
        indices: Indices of the groups.
        cache: Folder of recordings.
        jobs: Number of processes.
        fresh: Train existing groups again.
        on_done: Called after each group.
    """
    work = [(split, seed, index, cache) for index in indices]
    for piece in work if fresh else ():
        shutil.rmtree(group_folder(cache, *piece[:3]), ignore_errors=True)
    return _record_each(_record_group, work, jobs=jobs, on_done=on_done)


def _record_group(split: WildSplit, seed: int, index: int, cache: Path) -> tuple[str, Path]:
    start = process_time()
    group, plans = draw_group(split, seed, index)
    folder = group_folder(cache, split, seed, index)
    for plan in plans:
        _record_member(plan, folder, data_seed=plans[0].seed)
    done = replace(group, seconds=round(process_time() - start, 1))
    (folder / GROUP_NOTE).write_bytes(msgspec.json.encode(done))  # last, so that a group with a note is complete
    return f"{group.family}, group {index}", folder


def _record_member(plan: MemberPlan, folder: Path, *, data_seed: int) -> None:
    """Train one member, unless its recording exists."""
    target, partial = folder / plan.member.name, folder / f".{plan.member.name}"
    if target.exists():
        return
    for left_over in (partial, folder / f"{partial.name}.out"):
        shutil.rmtree(left_over, ignore_errors=True)
    try:
        train(with_settings(plan.recipe), partial, plan.seed, data_seed=data_seed, order_seed=plan.order)
    except (ValueError, RuntimeError):  # a training that fails because of its change leaves a record up to that point
        if plan.member.kind != "change" or not (partial / SCALARS_NAME).exists():
            raise
    shutil.rmtree(folder / f"{partial.name}.out", ignore_errors=True)
    partial.rename(target)


# Each piece of work in its own process.
def _record_each(
    job: Callable[..., tuple[str, Path]], work: Sequence[Work], *, jobs: int, on_done: Callable[[FinishedTraining], object]
) -> list[FinishedTraining]:
    """Do each piece of work in its own process, `jobs` at a time; `job` returns its name and its folder."""
    done: list[FinishedTraining] = []
    left = list(work)
    while left := _until_one_dies(job, left, jobs, done, on_done):
        # One of the running processes has died, and it is unknown which: run each of their jobs once more, alone.
        for piece in left[:jobs]:
            if _until_one_dies(job, [piece], 1, done, on_done):
                split, seed, index, _ = piece
                done.append(
                    FinishedTraining(name=f"{split}, draw {index}", seed=seed, seconds=0.0, error="its process died twice")
                )
                on_done(done[-1])
        left = left[jobs:]
    return done


def _until_one_dies(
    job: Callable[..., tuple[str, Path]],
    work: Sequence[Work],
    jobs: int,
    done: list[FinishedTraining],
    on_done: Callable[[FinishedTraining], object],
) -> list[Work]:
    """Do pieces of work; if a process dies, as from a crash in a library, and ends the pool, return those that are left."""
    from multiprocessing import get_context

    context = get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=1) as pool:
        pieces = {pool.submit(_apart, job, piece): piece for piece in work}
        for ended in as_completed(pieces):
            if not isinstance(ended.exception(), BrokenExecutor):
                done.append(ended.result())
                on_done(done[-1])
                del pieces[ended]
    return list(pieces.values())


def _apart(job: Callable[..., tuple[str, Path]], work: Work) -> FinishedTraining:
    import logging
    import os
    import warnings

    os.nice(10)  # many trainings should leave the machine usable
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    start, (split, seed, index, _) = process_time(), work
    try:
        name, folder = job(*work)
    except Exception as failure:  # noqa: BLE001  whatever a training dies of is told, and the others go on
        error = f"{type(failure).__name__}: {failure}"
        return FinishedTraining(name=f"{split}, draw {index}", seed=seed, seconds=process_time() - start, error=error)
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return FinishedTraining(name=name, seed=seed, seconds=process_time() - start, size=size)
