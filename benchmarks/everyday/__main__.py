"""Trains what the cache lacks, judges everything, and prints the tables of docs/everyday.md.

    python -m benchmarks.everyday [--only NAME,...] [--seed 0] [--jobs 2] [--cache FOLDER] [--write]

Every training is a folder of the cache, made by a process of its own, and is kept: only what is missing is trained. A name is
that of a training, of a task or of a mistake. `--write` puts the tables into docs/everyday.md.
"""

import argparse
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.everyday import catalogue, page
from benchmarks.everyday.outcome import Verdict, judge
from ckaudit.lab.wild.forms import FORMS

ROOT = Path(__file__).parents[2]


def train_apart(name: str, *, seed: int, cache: Path) -> None:
    """Train in a process of its own, unless it has been done, and say how that ended."""
    if catalogue.is_trained(catalogue.folder_of(name, seed, cache)):
        return
    command = [sys.executable, "-m", "benchmarks.everyday", "--record", name, "--seed", str(seed), "--cache", str(cache)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(f"{name}: {'trained' if done.returncode == 0 else done.stderr[-2000:]}", flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.everyday", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", metavar="NAME,...", default="", help="trainings, tasks or mistakes; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ckaudit" / "everyday")
    parser.add_argument("--record", metavar="NAME", help="do this training in this process, and judge nothing")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/everyday.md")
    return parser


def main() -> None:
    """Train what is missing, judge everything, and print the tables."""
    wanted = _parser().parse_args()
    seed, cache = wanted.seed, wanted.cache.absolute()
    if wanted.record:
        catalogue.record(wanted.record, seed, cache)
        return
    try:
        names = catalogue.select_names(wanted.only)
    except ValueError as error:
        _parser().error(str(error))
    cache.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(wanted.jobs) as pool:
        list(pool.map(partial(train_apart, seed=seed, cache=cache), names))
    folders = {name: catalogue.folder_of(name, seed, cache) for name in names}
    trained = {name: folder for name, folder in folders.items() if catalogue.is_trained(folder)}
    with ProcessPoolExecutor(wanted.jobs, mp_context=get_context("spawn")) as auditors:
        verdicts: dict[str, dict[str, Verdict]] = {
            form: dict(zip(trained, auditors.map(partial(judge, form=form), trained.values()), strict=True)) for form in FORMS
        }
    found = page.tables(verdicts)
    print(found)
    if wanted.write:
        page.write(found)


if __name__ == "__main__":
    main()
