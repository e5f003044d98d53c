"""What is left of two processes' speed on a Dask or Ray cluster of this machine, for work that is nothing but parsing.

    python benchmarks/floors/engines_floor.py [--tasks 200] [--times 8] [--rounds 3] [--workers 2]

The libraries' own calls and nothing of ckaudit: `Client.map`, `ray.remote` and a pool of as many processes are given the same
checkpoints to parse again and again, a hundredth of a second for each time. What the clusters lose here they lose to their own
scheduler, clients and workers, which want the same cores; `benchmarks/fleet_engines.py` cannot lose less.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import orjson

sys.path[:0] = [str(Path(__file__).parents[number]) for number in (1, 2)]

from fleet import write_fleet  # noqa: E402  stands beside this

from tests.clusters import dask, ray  # noqa: E402

Parse = Callable[[str], int]


def parse(folder: str, times: int) -> int:
    """Parse the checkpoints of a folder so many times."""
    paths = list(Path(folder).glob("analysis*"))
    for _ in range(times):
        for path in paths:
            orjson.loads(path.read_bytes())
    return len(paths)


def seconds(results: Iterable[int], warm: int) -> float:
    """Return the wall time of all results but the first."""
    waiting = iter(results)
    for _ in range(warm):
        next(waiting)
    start = time.perf_counter()
    for _ in waiting:
        pass
    return time.perf_counter() - start


def on_dask(address: str, folder: str, times: int, tasks: int, warm: int) -> float:
    """Time a Dask cluster."""
    from distributed import Client, as_completed

    with Client(address.replace("dask", "tcp"), set_as_default=False) as client:
        while not client.nthreads():
            time.sleep(0.2)
        futures = client.map(parse, [folder] * tasks, times=times, pure=False)
        return seconds((rows for _, rows in as_completed(futures, loop=client.loop, with_results=True)), warm)


def on_ray(address: str, folder: str, times: int, tasks: int, warm: int) -> float:
    """Time a Ray cluster."""
    import ray as library

    library.init(address.removeprefix("ray://"), log_to_driver=False, ignore_reinit_error=True)
    remote = library.remote(parse)
    waiting = [remote.remote(folder, times) for _ in range(tasks)]

    def results() -> Iterable[int]:
        left = waiting
        while left:
            done, left = library.wait(left, num_returns=1)
            yield library.get(done[0])

    try:
        return seconds(results(), warm)
    finally:
        library.shutdown()


def on_processes(workers: int, folder: str, times: int, tasks: int, warm: int) -> float:
    """Time a pool of processes."""
    with ProcessPoolExecutor(workers, mp_context=get_context("forkserver")) as pool:
        return seconds(pool.map(parse, [folder] * tasks, [times] * tasks), warm)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("--tasks", 200), ("--times", 8), ("--rounds", 3), ("--workers", 2)):
        parser.add_argument(option, type=int, default=default)
    given = parser.parse_args()
    print(f"| engine, {given.workers} workers | tasks/s | of a pool of processes |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        write_fleet(Path(temporary), 1, 60)
        asked = (str(next(Path(temporary).iterdir())), given.times, given.tasks, 4 * given.workers)
        for name, cluster, on_cluster in (("Dask", dask, on_dask), ("Ray", ray, on_ray)):
            with cluster(given.workers) as there:
                time.sleep(5)
                pairs = [(on_cluster(there.address, *asked), on_processes(given.workers, *asked)) for _ in range(given.rounds)]
            rate = (given.tasks - asked[-1]) / median(remote for remote, _ in pairs)
            print(f"| {name} | {rate:.1f} | {median(local / remote for remote, local in pairs):.0%} |")


if __name__ == "__main__":
    main()
