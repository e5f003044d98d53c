"""Clusters of Dask and Ray on this machine, started as somebody would start them, and ended with all that they began."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from ckaudit.errors import UsageError
from ckaudit.fleet.engines import Engine, engine_at
from tests.object_storage import free_port

ROOT = Path(__file__).parents[1]
QUIET = {"PYTHONWARNINGS": "ignore", "RAY_DISABLE_IMPORT_WARNING": "1"}
SECONDS = 60
"""Until a cluster must have its workers."""


class Cluster(NamedTuple):
    """A cluster.

    Attributes:
        address: Where it is, as `--engine` takes it.
        workers: What was started for each of its workers; empty: it starts them itself.
    """

    address: str
    workers: list[subprocess.Popen[bytes]]


@contextmanager
def dask(workers: int, *options: str) -> Iterator[Cluster]:
    """Run a Dask cluster; each worker has a program of its own, which is given further options."""
    address = f"127.0.0.1:{free_port()}"
    port = address.rpartition(":")[2]
    processes = [start("dask", "scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard")]
    cluster = Cluster(f"dask://{address}", [dask_worker(f"dask://{address}", *options) for _ in range(workers)])
    try:
        connected(lambda: engine_at(cluster.address), workers)
        yield cluster
    finally:
        end(*cluster.workers, *processes)


def dask_worker(address: str, *options: str) -> subprocess.Popen[bytes]:
    """Start one more worker of a Dask cluster."""
    place = address.replace("dask://", "tcp://")
    return start("dask", "worker", place, "--nworkers", "1", "--nthreads", "1", "--no-dashboard", *options)


@contextmanager
def ray(workers: int) -> Iterator[Cluster]:
    """Run a Ray cluster."""
    port = str(free_port())
    limits = ("--num-cpus", str(workers), "--object-store-memory", "100000000")
    without = ("--include-dashboard", "false", "--include-log-monitor", "false", "--disable-usage-stats")
    head = start("ray", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", port, *limits, *without)
    cluster = Cluster(f"ray://127.0.0.1:{port}", [])
    try:
        connected(lambda: engine_at(cluster.address), workers)
        yield cluster
    finally:
        import ray as library

        library.shutdown()
        end(head)


def start(*words: str) -> subprocess.Popen[bytes]:
    """Start a program of this environment, in a group of its own."""
    return subprocess.Popen(
        [str(Path(sys.executable).parent / words[0]), *words[1:]],
        env=os.environ | QUIET | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end(*processes: subprocess.Popen[bytes]) -> None:
    """Kill programs and all that they began."""
    for process in processes:
        if process.poll() is None:
            os.killpg(os.getpgid(process.pid), signal.SIGKILL)
        process.wait()


def connected(make: Callable[[], Engine], workers: int) -> Engine:
    """Return an engine once its cluster, which was just started, has its workers."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            engine = make()
            if engine.workers >= workers:
                return engine
        except UsageError:
            pass
        assert time.monotonic() < until
        time.sleep(0.3)
