"""What a cache of columns could save at most: a run whose columns lie in one file is judged, against one whose files are read.

    python benchmarks/floors/column_cache_floor.py RUN...

The cache is the least that could be right: one file of arrays as they are in memory, and a look at every file of the run, whether
it is still the one that was read. Nothing is compressed, nothing is checked, and the time to write it is not counted.
"""

import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

from ckaudit.audit.engine import open_judged, triage_reads, triage_run
from ckaudit.contract.io.folder import list_folder
from ckaudit.run.run import Run

ROUNDS = 7


def cpu(work: Callable[[], object]) -> float:
    """Return seconds of processor time, the median of some rounds after one that fills caches."""
    work()
    spent = []
    for _ in range(ROUNDS):
        start = process_time()
        work()
        spent.append(process_time() - start)
    return median(spent)


def from_cache(run: Path, cache: Path) -> Run:
    """Return the run as it lies in the cache, after a look at its files."""
    for file in list_folder(run).checkpoints:
        file.path.stat()
    stored: Run = pickle.loads(cache.read_bytes())
    return stored


def row(run: Path) -> str:
    """Return a row of the table: what reading costs, what the cache costs, and what stays the same."""
    read = open_judged(run, reads=triage_reads())
    with TemporaryDirectory() as folder:
        cache = Path(folder) / "columns"
        cache.write_bytes(pickle.dumps(read, protocol=5))
        reading = cpu(lambda: open_judged(run, reads=triage_reads()))
        cached = cpu(lambda: from_cache(run, cache))
        judging = cpu(lambda: triage_run(from_cache(run, cache))) - cached
        share = cache.stat().st_size / sum(file.path.stat().st_size for file in list_folder(run).checkpoints)
    saved = (reading + judging) / (cached + judging)
    times = " | ".join(f"{1000 * seconds:.1f}" for seconds in (reading, cached, judging))
    return f"| {run.name}, {len(read.checkpoint_steps)} checkpoints | {times} | {share:.0%} | {saved:.2f} |"


if __name__ == "__main__":
    print("| run | reading, ms | from the cache, ms | judging, ms | cache over files | triage faster by |")
    print("|---|---|---|---|---|---|")
    for name in sys.argv[1:]:
        print(row(Path(name)), flush=True)
