"""Fleets in object storage: found by one listing, known again by versions, told by their addresses."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ckaudit.contract.schema.fleet import Fleet
from ckaudit.errors import UsageError
from ckaudit.fleet.remote_runs import find_remote
from tests.fleet.test_fleet import LOG, Here, fleet_at
from tests.object_storage import Bucket, s3, s3_server  # noqa: F401  fixtures

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


@pytest.fixture
def stored(s3: Bucket) -> Bucket:  # noqa: F811
    s3.put("runs/healthy", RUNS / "healthy")
    s3.put("runs/deep/nan_batch", RUNS / "nan_batch")
    s3.put("runs/log.csv", LOG.encode())
    s3.put("runs/tracker/version_0/metrics.csv", LOG.encode())
    s3.put("runs/README.md", b"# what this is")
    s3.put("runs/weights/model.bin", b"0" * 100)
    return s3


ALL = ["runs/deep/nan_batch", "runs/healthy", "runs/log.csv", "runs/tracker"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("runs/*", ALL),
        ("runs", ALL),
        ("runs/", ALL),
        ("runs/**", ALL),
        ("runs/h*", ["runs/healthy"]),
        ("runs/[dh]*", ["runs/deep/nan_batch", "runs/healthy"]),
        ("runs/healthy", ["runs/healthy"]),
        ("runs/healthy/*", ["runs/healthy"]),
        ("runs/**/nan_?atch", ["runs/deep/nan_batch"]),
        ("runs/**/*.csv", ["runs/log.csv", "runs/tracker/version_0/metrics.csv"]),
        ("runs/log.csv", ["runs/log.csv"]),
    ],
)
def test_patterns_find_what_they_would_find_on_a_disk(stored, pattern, found):
    assert sorted(find_remote(stored.uri(pattern), b"").states) == [stored.uri(name) for name in found]


def test_a_pattern_that_matches_nothing_is_said(stored):
    with pytest.raises(UsageError, match="matches nothing"):
        find_remote(stored.uri("runs/nope*"), b"")
    with pytest.raises(UsageError, match="names no bucket"):
        find_remote("s3://*/runs", b"")


def test_a_text_that_is_no_log_is_passed_over_where_a_pattern_found_it(stored, tmp_path):
    stored.put("runs/notes.txt", b"nothing to see here\n")
    stored.put("runs/weights/notes.txt", b"nothing to see here either\n")
    fleet = fleet_at(tmp_path / "data", stored.uri("runs/*"))
    assert sorted(run.run for run in fleet.runs) == [stored.uri(name) for name in ALL]
    assert fleet.audited == len(ALL)
    assert f"passed over, because no run is known in it: {stored.uri('runs/README.md')} and 2 more" in fleet.notes
    again = fleet_at(tmp_path / "data", stored.uri("runs/*"))
    assert (again.notes, again.unchanged) == (fleet.notes, len(ALL))
    named = fleet_at(tmp_path / "data", stored.uri("runs/notes.txt"))
    assert [run.status for run in named.runs] == ["unreadable"]
    with pytest.raises(UsageError, match=r"no run is known in what '.*/runs/n\*' matches"):
        fleet_at(tmp_path / "data", stored.uri("runs/n*"))


def test_what_did_not_change_is_not_fetched_again(stored, tmp_path):
    first = fleet_at(tmp_path / "data", stored.uri("runs/*"))
    rows = {run.run: run for run in first.runs}
    assert sorted(rows) == [stored.uri(name) for name in ALL]
    assert {run.status for run in first.runs} == {"audited"}
    assert rows[stored.uri("runs/deep/nan_batch")].cause == "bad_batch"
    assert str(tmp_path) not in msgspec.json.encode(first).decode().replace(first.dataset, "")
    stored.put("runs/log.csv", LOG.encode() + b"60,nan\n61,nan\n")
    again = fleet_at(tmp_path / "data", stored.uri("runs/*"), engine=(engine := Here()))
    assert engine.asked == [stored.uri("runs/log.csv")]
    assert again.runs[0].severity == "sev0"


def test_workers_find_the_storage_too(stored, tmp_path):
    command = [
        sys.executable,
        "-m",
        "ckaudit",
        "fleet",
        stored.uri("runs/[dl]*"),
        str(RUNS / "healthy"),
        "-o",
        str(tmp_path / "d"),
    ]
    done = subprocess.run(
        [*command, "--format", "json", "--jobs", "2", "--no-config"], capture_output=True, env=os.environ, check=False
    )
    assert done.returncode == 1, done.stderr
    fleet = msgspec.json.decode(done.stdout, type=Fleet)
    assert [run.status for run in fleet.runs] == ["audited"] * 3
    assert fleet.runs[0].run == stored.uri("runs/deep/nan_batch")


def test_a_run_that_vanishes_costs_itself_alone(stored, tmp_path):
    class Vanishing(Here):
        def results(self, sources):
            for source in sources:
                if source.name.endswith("log.csv"):
                    (stored.folder / "runs" / "log.csv").unlink()
                yield from super().results([source])

    fleet = fleet_at(tmp_path / "data", stored.uri("runs/*"), engine=Vanishing())
    gone = next(run for run in fleet.runs if run.run.endswith("log.csv"))
    assert (gone.status, gone.problem.split(" ")[0]) == ("unreadable", stored.uri("runs/log.csv"))
    assert sum(run.status == "audited" for run in fleet.runs) == 3
