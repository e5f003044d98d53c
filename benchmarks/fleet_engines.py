"""How many runs a second the workers of a cluster audit, against as many processes of this machine, side by side.

python benchmarks/fleet_engines.py [--runs 100] [--checkpoints 60] [--rounds 3] [--workers 2]

The script starts the clusters of Dask and Ray and stops them afterwards. The cost of starting them is not counted, and neither is
that of the first runs, for which workers and local processes load the rules.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from fleet import write_fleet  # noqa: E402

from ckaudit.fleet.engines import Engine, engine_at  # noqa: E402
from ckaudit.fleet.source import RunSource  # noqa: E402
from tests import clusters  # noqa: E402


def seconds(make: Callable[[], Engine], sources: list[RunSource], warm: int) -> float:
    """Return the wall time of all sources but the first `warm`, during which everything is loaded."""
    results = make().results(sources)
    for _ in range(warm):
        next(results)
    start = time.perf_counter()
    for _ in results:
        pass
    return time.perf_counter() - start


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser()
    for option, default in (("--runs", 100), ("--checkpoints", 60), ("--rounds", 3), ("--workers", 2)):
        parser.add_argument(option, type=int, default=default)
    wanted = parser.parse_args()
    root, workers = Path(tempfile.mkdtemp(prefix="engines-")), wanted.workers
    try:
        write_fleet(root, wanted.runs, wanted.checkpoints)
        sources = [RunSource(name=folder.name, path=str(folder)) for folder in sorted(root.iterdir())]
        warm = 4 * workers
        print(f"| engine, {workers} workers | runs/s | of local processes | aim |\n|---|---|---|---|")
        for name, cluster in (("Dask", clusters.dask), ("Ray", clusters.ray)):
            with cluster(workers) as there:
                pairs = [
                    tuple(seconds(lambda at=at: engine_at(at, workers=workers), sources, warm) for at in (there.address, ""))
                    for _ in range(wanted.rounds)
                ]
            share = median(local / remote for remote, local in pairs)
            print(f"| {name} | {(len(sources) - warm) / median(remote for remote, _ in pairs):.1f} | {share:.0%} | 90 % |")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
