"""Clusters of Dask and Ray that somebody runs: the rows are those of local processes, whatever becomes of a worker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ckaudit.contract.schema.fleet import Fleet, FleetRun
from ckaudit.errors import CkauditError, UsageError
from ckaudit.fleet.dataset import read_stored
from ckaudit.fleet.engines import engine_at
from ckaudit.fleet.engines.cluster import check_versions
from ckaudit.fleet.engines.dask_cluster import DaskEngine
from ckaudit.fleet.engines.local import KILLED, LocalEngine
from ckaudit.fleet.engines.ray_cluster import RayEngine
from ckaudit.fleet.fleet import FleetRequest, audit_fleet
from ckaudit.fleet.source import RunSource
from ckaudit.reports import render
from tests import clusters
from tests.clusters import Cluster, connected, dask_worker, end
from tests.fleet.crashing import crash
from tests.object_storage import free_port

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"


@pytest.fixture(scope="module")
def dask() -> Iterator[Cluster]:
    with clusters.dask(2, "--no-nanny") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def ray() -> Iterator[Cluster]:
    with clusters.ray(2) as cluster:
        yield cluster


def sources() -> list[RunSource]:
    names = ["healthy", "lr_too_high", "experts_two_ranks", "float16_overflow", "there_is_none"]
    return [RunSource(name=name, path=str(RUNS / name)) for name in names]


def place_of(cluster: Cluster) -> str:
    return cluster.address.partition("://")[2]


def settled(results: Iterator[list[FleetRun]]) -> list[FleetRun]:
    """Return rows by name, less the times that no two audits share."""
    rows = sorted((row for rows in results for row in rows), key=lambda row: row.run)
    return [replace(row, seconds=0.0, audited=0.0) for row in rows]


def test_clusters_say_what_local_processes_say(dask, ray):
    local = settled(LocalEngine(2).results(sources()))
    assert settled(engine_at(dask.address).results(sources())) == local
    assert settled(engine_at(ray.address).results(sources())) == local


def crashing(folder: Path) -> list[RunSource]:
    names = [f"{number}-{'once' if number in (2, 7) else 'well'}" for number in range(12)]
    return [RunSource(name=name, path=str(folder / name)) for name in names]


def test_a_ray_worker_that_is_killed_changes_nothing_and_prints_nothing(ray, tmp_path, capfd):
    always = RunSource(name="always", path=str(tmp_path / "always"))  # last by name
    *rows, lost = settled(RayEngine(place_of(ray), work=crash).results([*crashing(tmp_path), always]))
    assert rows == all_well(crashing(tmp_path))
    assert (lost.run, lost.problem) == ("always", KILLED)
    assert capfd.readouterr().out == ""


def test_a_dask_worker_that_is_killed_changes_nothing(dask, tmp_path):
    slow = [RunSource(name=f"{number}-slow", path=str(tmp_path / str(number))) for number in range(10)]
    results = DaskEngine(place_of(dask), work=crash).results(slow)
    first = next(results)
    time.sleep(0.5)  # rows of others have arrived by then, and their worker is lost
    end(dask.workers[0])
    assert settled(iter([first, *results])) == all_well(slow)


def test_a_fleet_whose_worker_is_killed_is_the_same_to_the_byte(dask, tmp_path):
    """Same files, same findings, same order: of the JSON only the times and the folder are left out."""
    other = dask_worker(dask.address, "--no-nanny")
    connected(lambda: engine_at(dask.address), 2)
    patterns = [str(RUNS / name) for name in ("healthy", "lr_too_high", "nan_batch", "experts_two_ranks", "float16_overflow")]
    undisturbed = audit_fleet(FleetRequest(patterns=patterns, folder=tmp_path / "one"), LocalEngine(1))
    killed = audit_fleet(
        FleetRequest(patterns=patterns, folder=tmp_path / "two"), engine_at(dask.address), progress=lambda *_: end(other)
    )
    assert as_bytes(killed) == as_bytes(undisturbed)
    assert [as_bytes(replace(killed, runs=read_stored(tmp_path / name).runs)) for name in ("one", "two")] == [
        as_bytes(replace(killed, runs=sorted(killed.runs, key=lambda row: row.run)))
    ] * 2


def as_bytes(fleet: Fleet) -> bytes:
    rows = [replace(row, seconds=0.0, audited=0.0) for row in fleet.runs]
    return render(replace(fleet, runs=rows, dataset=""), "json").encode()


def all_well(found: list[RunSource]) -> list[FleetRun]:
    return settled(iter([[FleetRun(run=source.name, status="audited")] for source in found]))


def test_a_cluster_that_is_gone_is_said():
    for address in (f"dask://127.0.0.1:{free_port()}", f"ray://127.0.0.1:{free_port()}"):
        with pytest.raises(UsageError, match="answers at"):
            engine_at(address)
    with pytest.raises(UsageError, match="is no engine"):
        engine_at("slurm://there")
    with pytest.raises(CkauditError, match=r"a worker has ckaudit 0\.0\.0"):
        check_versions(["0.0.0"])
