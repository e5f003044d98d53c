"""All trainings by name: the healthy ones, the tasks, and each task with each mistake that can be made to it."""

import shutil
from pathlib import Path
from time import perf_counter

import torch

from benchmarks.everyday.healthy import healthy_trainings
from benchmarks.everyday.mistakes import mistakes
from benchmarks.everyday.tasks import TASKS, Maker
from benchmarks.everyday.training import Training, run

DONE = "trained"


def ill_name(task: str, mistake: str) -> str:
    """Return the name of the training of a task with a mistake."""
    return f"{task}.{mistake}"


def names_of_all() -> list[str]:
    """Return the names of all trainings: the tasks, the other healthy ones, those with a mistake."""
    ill = [ill_name(task, mistake.name) for mistake in mistakes().values() for task in mistake.tasks]
    return [*TASKS, *healthy_trainings(), *ill]


def select_names(wanted: str) -> list[str]:
    """Return the names of the trainings that are asked for by name, by task or by mistake, and of the tasks that they need.

    Args:
        wanted: Names with commas between them; nothing: all.

    Raises:
        ValueError: If nothing is called so.
    """
    everything, asked = names_of_all(), set(filter(None, wanted.split(",")))
    if unknown := asked - set(everything) - mistakes().keys():
        raise ValueError(f"nothing is called {', '.join(sorted(unknown))}")
    found = [name for name in everything if not asked or asked & {name, *name.split(".")}]
    needed = {name.partition(".")[0] for name in found}
    return [name for name in everything if name in needed or name in found]


def make_training(name: str, seed: int) -> Training:
    """Return the training of a name."""
    torch.manual_seed(seed)
    task, _, mistake = name.partition(".")
    maker: Maker = (TASKS | healthy_trainings())[task]
    training = maker()
    if mistake:
        mistakes()[mistake].make(training)
    return training


def folder_of(name: str, seed: int, cache: Path) -> Path:
    """Return where a training is recorded."""
    return cache / f"{name}.{seed}"


def is_trained(folder: Path) -> bool:
    """Tell whether a folder holds a training that came to its end."""
    return (folder / DONE).exists()


def record(name: str, seed: int, cache: Path) -> None:
    """Train in this process, unless it has been done."""
    folder = folder_of(name, seed, cache)
    if is_trained(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    torch.set_num_threads(1)
    start = perf_counter()
    run(make_training(name, seed), folder)
    (folder / DONE).write_text(f"{perf_counter() - start:.1f} s\n", encoding="utf-8")
