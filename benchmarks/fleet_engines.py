"""How many runs a second the workers of a cluster audit, against as many processes of this machine, side by side.

python benchmarks/fleet_engines.py [--runs 100] [--checkpoints 60] [--rounds 3] [--workers 2]

The clusters of Dask and Ray are started for it and stopped after it; what starting them costs is not counted, nor is what the
first runs cost, for which workers and local processes load the rules.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import socket
from statistics import median

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from fleet import write_fleet  # noqa: E402

from ckaudit.errors import UsageError  # noqa: E402
from ckaudit.fleet.engines import Engine, engine_at  # noqa: E402
from ckaudit.fleet.source import Source  # noqa: E402


@contextmanager
def dask(workers: int) -> Iterator[str]:
    """Run a Dask cluster, and give its address."""
    address = f"127.0.0.1:{free_port()}"
    each = ("worker", f"tcp://{address}", "--nworkers", str(workers), "--nthreads", "1", "--no-dashboard")
    head = ("scheduler", "--host", "127.0.0.1", "--port", address.rpartition(":")[2], "--no-dashboard")
    with process("dask", *head), process("dask", *each):
        yield f"dask://{address}"


@contextmanager
def ray(workers: int) -> Iterator[str]:
    """Run a Ray cluster, and give its address."""
    port = str(free_port())
    limits = ("--num-cpus", str(workers), "--object-store-memory", "100000000", "--include-dashboard", "false")
    with process("ray", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", port, *limits):
        yield f"ray://127.0.0.1:{port}"


@contextmanager
def process(*words: str) -> Iterator[None]:
    """Run a program beside this one."""
    environment = os.environ | {"PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"}
    program = str(Path(sys.executable).parent / words[0])
    running = subprocess.Popen(
        [program, *words[1:]], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        yield
    finally:
        os.killpg(running.pid, 15)
        running.wait()


def free_port() -> int:
    """Return a port that nobody listens at."""
    with socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def connected(address: str, workers: int) -> Engine:
    """Return an engine once its workers are there."""
    while True:
        try:
            engine = engine_at(address, workers=workers)
        except UsageError:
            time.sleep(0.3)
            continue
        if engine.workers >= workers:
            return engine


def seconds(make: Callable[[], Engine], sources: list[Source], warm: int) -> float:
    """Return the wall time of all sources but the first, which load what is loaded once."""
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
        sources = [Source(name=folder.name, path=str(folder)) for folder in sorted(root.iterdir())]
        warm = 4 * workers
        print(f"| engine, {workers} workers | runs/s | of local processes | aim |\n|---|---|---|---|")
        for name, cluster in (("Dask", dask), ("Ray", ray)):
            with cluster(workers) as address:
                pairs = [
                    tuple(seconds(lambda at=at: connected(at, workers), sources, warm) for at in (address, ""))
                    for _ in range(wanted.rounds)
                ]
            share = median(local / remote for remote, local in pairs)
            print(f"| {name} | {(len(sources) - warm) / median(remote for remote, _ in pairs):.1f} | {share:.0%} | 90 % |")
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
