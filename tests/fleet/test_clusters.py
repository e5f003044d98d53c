"""Clusters of Dask and Ray that somebody runs: the rows are those of local processes, whatever becomes of a worker."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.fleet import Fleet, FleetRun
from ckaudit.errors import CkauditError, UsageError
from ckaudit.fleet.dataset import read_stored
from ckaudit.fleet.engines import Engine, engine_at
from ckaudit.fleet.engines.cluster import check_versions
from ckaudit.fleet.engines.dask_cluster import DaskEngine
from ckaudit.fleet.engines.local import KILLED, LocalEngine
from ckaudit.fleet.engines.ray_cluster import RayEngine
from ckaudit.fleet.fleet import FleetRequest, audit_fleet
from ckaudit.fleet.source import Source
from ckaudit.reports import render
from tests.fleet.crashing import crash

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore", "RAY_DISABLE_IMPORT_WARNING": "1"}


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def start(*words: str) -> subprocess.Popen[bytes]:
    folder = Path(sys.executable).parent
    return subprocess.Popen(
        [str(folder / words[0]), *words[1:]],
        env=ENVIRONMENT,
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        with_group = os.getpgid(process.pid) if process.poll() is None else None
        if with_group:
            os.killpg(with_group, signal.SIGKILL)
        process.wait()


def connected(make: Callable[[], Engine], workers: int) -> Engine:
    """Wait until a cluster that was just started has its workers."""
    until = time.monotonic() + 60
    while True:
        try:
            engine = make()
            if engine.workers >= workers:
                return engine
        except UsageError:
            pass
        assert time.monotonic() < until
        time.sleep(0.3)


@pytest.fixture(scope="module")
def dask() -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    address = f"127.0.0.1:{free_port()}"
    scheduler = start("dask", "scheduler", "--host", "127.0.0.1", "--port", address[-5:].lstrip(":"), "--no-dashboard")
    worker = ("dask", "worker", f"tcp://{address}", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny")
    workers = [start(*worker), start(*worker)]
    connected(lambda: DaskEngine(address), 2)
    yield address, workers
    end(*workers, scheduler)


@pytest.fixture(scope="module")
def ray() -> Iterator[str]:
    port = free_port()
    limits = ("--num-cpus", "2", "--object-store-memory", "100000000", "--include-dashboard", "false")
    head = start("ray", "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(port), *limits)
    address = f"127.0.0.1:{port}"
    connected(lambda: RayEngine(address), 2)
    yield address
    import ray as library

    library.shutdown()
    end(head)


def sources() -> list[Source]:
    names = ["healthy", "lr_too_high", "experts_two_ranks", "float16_overflow", "there_is_none"]
    return [Source(name=name, path=str(RUNS / name)) for name in names]


def settled(results: Iterator[list[FleetRun]]) -> list[FleetRun]:
    """Return rows by name, less the times that no two audits share."""
    rows = sorted((row for rows in results for row in rows), key=lambda row: row.run)
    return [replace(row, seconds=0.0, audited=0.0) for row in rows]


def test_clusters_say_what_local_processes_say(dask, ray):
    local = settled(LocalEngine(2).results(sources()))
    assert settled(engine_at(f"dask://{dask[0]}").results(sources())) == local
    assert settled(engine_at(f"ray://{ray}").results(sources())) == local


def crashing(folder: Path) -> list[Source]:
    names = [f"{number}-{'once' if number in (2, 7) else 'well'}" for number in range(12)]
    return [Source(name=name, path=str(folder / name)) for name in names]


def test_a_ray_worker_that_is_killed_changes_nothing_and_prints_nothing(ray, tmp_path, capfd):
    rows = settled(RayEngine(ray, work=crash).results(crashing(tmp_path)))
    assert rows == all_well(crashing(tmp_path))
    always = RayEngine(ray, work=crash).results([Source(name="always", path=str(tmp_path / "always"))])
    assert [row.problem for rows in always for row in rows] == [KILLED]
    assert capfd.readouterr().out == ""


def test_a_dask_worker_that_is_killed_changes_nothing(dask, tmp_path):
    address, workers = dask
    slow = [Source(name=f"{number}-slow", path=str(tmp_path / str(number))) for number in range(10)]
    results = DaskEngine(address, work=crash).results(slow)
    first = next(results)
    end(workers[0])
    assert settled(iter([first, *results])) == all_well(slow)


def test_a_fleet_whose_worker_is_killed_is_the_same_to_the_byte(dask, tmp_path):
    """Same files, same findings, same order: of the JSON only the times and the folder are left out."""
    address, _ = dask
    other = start("dask", "worker", f"tcp://{address}", "--nworkers", "1", "--nthreads", "1", "--no-dashboard", "--no-nanny")
    connected(lambda: DaskEngine(address), 2)
    patterns = [str(RUNS / name) for name in ("healthy", "lr_too_high", "nan_batch", "experts_two_ranks", "float16_overflow")]
    undisturbed = audit_fleet(FleetRequest(patterns=patterns, folder=tmp_path / "one"), LocalEngine(1))
    killed = audit_fleet(
        FleetRequest(patterns=patterns, folder=tmp_path / "two"), DaskEngine(address), progress=lambda *_: end(other)
    )
    assert as_bytes(killed) == as_bytes(undisturbed)
    assert [as_bytes(replace(killed, runs=read_stored(tmp_path / name).runs)) for name in ("one", "two")] == [
        as_bytes(replace(killed, runs=sorted(killed.runs, key=lambda row: row.run)))
    ] * 2


def as_bytes(fleet: Fleet) -> bytes:
    rows = [replace(row, seconds=0.0, audited=0.0) for row in fleet.runs]
    return render(replace(fleet, runs=rows, dataset=""), "json").encode()


def all_well(found: list[Source]) -> list[FleetRun]:
    return settled(iter([[FleetRun(run=source.name, status="audited")] for source in found]))


def test_a_cluster_that_is_gone_is_said():
    for address in (f"dask://127.0.0.1:{free_port()}", f"ray://127.0.0.1:{free_port()}"):
        with pytest.raises(UsageError, match="answers at"):
            engine_at(address)
    with pytest.raises(UsageError, match="is no engine"):
        engine_at("slurm://there")
    with pytest.raises(CkauditError, match=r"a worker has ckaudit 0\.0\.0"):
        check_versions(["0.0.0"])
