"""Many trainings with peers attached, each in a process of the interpreter that has them."""

import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import monotonic
from typing import Any

from benchmarks.peers.in_loop import known
from benchmarks.peers.peer import versions
from benchmarks.peers.peer_cache import cached_recording, path_of
from ckaudit.errors import UsageError
from ckaudit.lab.record import FinishedTraining
from ckaudit.lab.training_spec import Recipe

MODULE = "benchmarks.peers.train_with_peers"
ROOT = str(Path(__file__).parents[2])


def attachable(python: str) -> dict[str, str]:
    """Return the versions of the peers that an interpreter has, by package.

    Raises:
        UsageError: If it cannot be run, has none of them, or cannot train with our loop.
    """
    packages = list(dict.fromkeys(peer.package for peer in known()))
    found = versions(python, packages, option="--in-loop")
    if not found:
        raise UsageError(f"{python} has none of {', '.join(packages)}", hint=f"{python} -m pip install {' '.join(packages)}")
    done = _in_other_interpreter([python, "-c", f"import torch, {MODULE}"], capture_output=True)
    if done.returncode:
        raise UsageError(f"{python} cannot train: {_last(done.stderr)}", hint=f"{python} -m pip install '.[torch]'")
    return found


def gather(
    python: str, recipes: Sequence[Recipe], cache: Path, *, jobs: int, on_done: Callable[[FinishedTraining], object]
) -> list[FinishedTraining]:
    """Train every recipe with the peers attached and keep what they say.

    Args:
        python: The interpreter.
        recipes: What is trained.
        cache: Where it is kept.
        jobs: Processes at a time.
        on_done: Called after each training.
    """
    done = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for ended in as_completed([pool.submit(_one, python, recipe, cache) for recipe in recipes]):
                done.append(ended.result())
                on_done(done[-1])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return done


def _one(python: str, recipe: Recipe, cache: Path) -> FinishedTraining:
    began = monotonic()
    command = [python, "-m", MODULE, recipe.name, str(recipe.seed), str(cache)]
    ended = _in_other_interpreter(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    entry, _ = cached_recording(cache, recipe)
    error = "" if entry.state == "fresh" else f"what {python} trained is not as it is here: {entry.why or entry.state}"
    if ended.returncode:
        error = _last(ended.stderr) or f"its process ended with {ended.returncode}"
    size = 0 if error else path_of(cache, recipe).stat().st_size
    return FinishedTraining(name=recipe.name, seed=recipe.seed, seconds=monotonic() - began, size=size, error=error)


def _in_other_interpreter(command: list[str], **streams: Any) -> subprocess.CompletedProcess[str]:
    """Run a command that imports this package and ckaudit from this checkout."""
    path = os.pathsep.join(filter(None, (ROOT, os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(command, text=True, check=False, env=os.environ | {"PYTHONPATH": path}, **streams)


def _last(printed: str) -> str:
    return (printed.strip().splitlines() or [""])[-1]
