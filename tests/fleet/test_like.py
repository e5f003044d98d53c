"""A fleet held against healthy runs: each run against those of its own configuration, as `triage --like` does it."""

import json
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace

from ckaudit.audit import triage
from ckaudit.diff.siblings.comparable import configuration_key
from ckaudit.errors import UsageError
from ckaudit.fleet.audit_run import audit_run
from ckaudit.fleet.engines.local import LocalEngine
from ckaudit.fleet.fleet import FleetRequest, audit_fleet
from ckaudit.fleet.like import MAX_EACH, criteria_like, with_own_siblings
from ckaudit.fleet.source import RunSource
from ckaudit.policy.acceptance import OPEN
from ckaudit.run.read import read_manifest
from tests.fleet.test_fleet import Here

PAIRS = Path(__file__).parents[2] / "fixtures" / "pairs"
GOOD = (str(PAIRS / "replica*"), str(PAIRS / "base"))


def fleet(folder, *patterns, engine=None, like=GOOD):
    request = FleetRequest(patterns=[str(pattern) for pattern in patterns], folder=folder, like=like)
    return audit_fleet(request, engine or Here())


def by_name(fleet):
    return {Path(run.run).name: run for run in fleet.runs}


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    return by_name(fleet(tmp_path_factory.mktemp("held"), PAIRS / "*"))


@pytest.mark.parametrize("name", ["lr_doubled", "frozen", "base", "replica_2"])
def test_a_row_says_what_triage_says_beside_the_same_siblings(held, name):
    report = triage(PAIRS / name, criteria=criteria_like(OPEN, GOOD, runs=[PAIRS / name]))
    row = held[name]
    assert row.verdict == report.verdict
    assert [(each.code, each.message) for each in row.findings] == [(each.code, each.message) for each in report.findings]
    assert row.siblings == sum(sibling.counts for sibling in report.siblings) == (2 if "re" in name or name == "base" else 3)


def test_a_doubled_rate_is_found_by_its_siblings_and_a_run_alone_is_judged_alone(held):
    assert {"SIB004", "SIB007"} <= {finding.code for finding in held["lr_doubled"].findings}
    assert held["tokenizer"].siblings == 0  # another vocabulary
    assert not any(finding.code.startswith("SIB") for finding in held["tokenizer"].findings)


def test_processes_say_the_same(held, tmp_path):
    rows = by_name(fleet(tmp_path, PAIRS / "*", engine=LocalEngine(2)))
    volatile = {"audited": 0, "seconds": 0}
    assert {name: replace(row, **volatile) for name, row in rows.items()} == {
        name: replace(row, **volatile) for name, row in held.items()
    }


def test_another_state_of_a_sibling_is_another_verdict(tmp_path):
    for name in ("base", "replica", "lr_doubled"):
        shutil.copytree(PAIRS / name, tmp_path / name)
    asked = (tmp_path / "data", tmp_path / "lr_doubled")
    first, engine = fleet(*asked, like=[str(tmp_path / "base")]), Here()
    assert fleet(*asked, like=[str(tmp_path / "base")], engine=engine).runs == first.runs
    assert not engine.asked
    (tmp_path / "base" / "scalars.jsonl").write_text("")
    assert fleet(*asked, like=[str(tmp_path / "base")], engine=engine).audited == 1
    assert fleet(*asked, like=[str(tmp_path / "replica")], engine=engine).audited == 1
    assert fleet(*asked, like=[], engine=engine).audited == 1


def test_each_configuration_has_its_own_siblings_and_the_newest_of_them(tmp_path):
    def run(name, rate, written):
        (tmp_path / name).mkdir()
        manifest = {"schema_version": "ck.run.v1", "seed": written, "config": {"lr": rate, "name": name}}
        (tmp_path / name / "run.json").write_text(json.dumps(manifest))
        return RunSource(name=name, path=str(tmp_path / name), written=float(written), fingerprint=name)

    healthy = [run(f"{rate}-{number}", rate, number) for rate in (0.1, 0.2) for number in range(MAX_EACH + 2)]
    fast, slow, other = run("fast", 0.2, 3), run("slow", 0.1, 3), run("other", 0.3, 3)
    held = {source.name: source for source in with_own_siblings([fast, other, slow, healthy[-1]], healthy)}
    assert set(dict(held["slow"].like)) == {str(tmp_path / f"0.1-{number}") for number in range(2, MAX_EACH + 2)}
    assert set(dict(held["fast"].like)) == {str(tmp_path / f"0.2-{number}") for number in range(2, MAX_EACH + 2)}
    assert held["other"] == other
    assert healthy[-1].path not in dict(held[healthy[-1].name].like)
    assert len({source.fingerprint for source in held.values()}) == len(held)


def test_a_seed_a_name_and_a_place_are_no_configuration_and_a_rate_is():
    base, other = (read_manifest(PAIRS / name) for name in ("base", "replica"))
    assert base.seed != other.seed or base.config != other.config or base.sessions != other.sessions
    assert configuration_key(base) == configuration_key(other) != b""
    faster = replace(base, planned_learning_rate=[[1.0, 0.1]])
    assert configuration_key(faster) != configuration_key(base)
    assert configuration_key(None) == b""


def test_like_that_matches_nothing_is_an_error(tmp_path):
    with pytest.raises(UsageError, match="matches nothing"):
        fleet(tmp_path / "data", PAIRS / "base", like=[str(tmp_path / "none-*")])


@pytest.mark.parametrize("lost", ["nowhere", "http://127.0.0.1:9/nowhere"])
def test_a_sibling_that_cannot_be_had_costs_no_run_its_verdict(lost):
    source = RunSource(name="run", path=str(PAIRS / "lr_doubled"), like=((str(PAIRS / "base"), "1"), (lost, "2")))
    (row,) = audit_run(source)
    assert (row.status, row.siblings) == ("audited", 1)
    assert "SIB007" in {finding.code for finding in row.findings}


def test_a_process_that_lives_on_opens_a_sibling_anew_where_it_has_changed(tmp_path):
    shutil.copytree(PAIRS / "base", tmp_path / "good")
    source = RunSource(name="run", path=str(PAIRS / "lr_doubled"), like=((str(tmp_path / "good"), "before"),))
    assert [row.siblings for row in audit_run(source)] == [1]
    shutil.rmtree(tmp_path / "good")
    assert [row.siblings for row in audit_run(replace(source, like=((str(tmp_path / "good"), "after"),)))] == [0]
