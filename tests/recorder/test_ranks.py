"""Trainings of several processes, against the same training in one."""

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch

from ckaudit.audit import triage
from ckaudit.contract.analysis import Checkpoint
from ckaudit.metrics.ranks import rank_step_time, straggler_ratio
from ckaudit.recorder.rank_facts import parameter_hash
from ckaudit.run.read import read_run
from ckaudit.validate import validate

SCRIPT = Path(__file__).with_name("many_ranks.py")
OWN = {"time", "cost", "data", "loss", "activations", "attention", "batch_hash", "train_loss_raw", "min_normalized_entropy"}
STATED = {"percentiles": 1e-3, "sampled_grid_32x32": 1e-3}  # four digits


def run(*trainings):
    """Run trainings one after another; return the exit codes of their ranks, and what they said."""
    command = [sys.executable, SCRIPT, *(json.dumps(each, default=str) for each in trainings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


def facts_of(folder, step):
    """Return the facts of every rank at a step."""
    paths = sorted(folder.glob(f"analysis_checkpoint_step_{step:08d}.rank*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Checkpoint).rank_facts for path in paths]


def merged(folder):
    """Return the merged checkpoints by name, without what is one rank's own."""
    paths = sorted(path for path in folder.glob("analysis_checkpoint_*.json") if ".rank" not in path.name)
    return {path.name: json.loads(path.read_bytes()) for path in paths}


def differences(found, expected, place=()):
    """Yield where two documents differ by more than rounding: 1e-4 of a number, or 1e-7 where it is nothing but rounding."""
    if isinstance(expected, dict) and expected.get("norm", 1) < 1e-7 and found["norm"] < 1e-7:
        return  # a head's bias on keys has no gradient but rounding
    if isinstance(expected, dict):
        if found.keys() - OWN != expected.keys() - OWN:
            yield place, found.keys() ^ expected.keys()
        for name in expected.keys() & found.keys() - OWN:
            yield from differences(found[name], expected[name], (*place, name))
    elif place[-1:] == ("counts",):
        # An element at an edge of two bins may fall into either.
        if np.abs(np.subtract(found, expected)).sum() > 0.1 * sum(expected) + 2:
            yield place, found, expected
    elif isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, (*place, index))
    elif isinstance(expected, float):
        if abs(found - expected) > max((STATED.get(name, 1e-4) for name in place), default=0) * abs(expected) + 1e-7:
            yield place, found, expected
    elif found != expected:
        yield place, found, expected


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a folder in which each kind of training has recorded 12 steps."""
    folder = tmp_path_factory.mktemp("ranks")
    kinds = {"one": 1, "ddp2": 2, "ddp4": 4}
    common = {"grids": "nested", "budget_kb": None}
    codes, said = run(*({"kind": name.rstrip("24"), "world": w, "folder": folder / name, **common} for name, w in kinds.items()))
    assert codes == [[0] * world for world in kinds.values()], said
    return folder


@pytest.mark.parametrize("kind", ["ddp2", "ddp4"])
def test_a_run_of_many_ranks_records_what_one_process_does(runs, kind):
    found, expected = merged(runs / kind), merged(runs / "one")
    assert found.keys() == expected.keys()
    assert [each["step"] for each in found.values()] == [0, 4, 8, 12]
    for name, document in expected.items():
        assert not [*differences(found[name], document)], name


@pytest.mark.parametrize(("kind", "world"), [("ddp2", 2), ("ddp4", 4)])
def test_a_run_of_many_ranks_is_sound(runs, kind, world):
    folder = runs / kind
    assert not validate([folder]).findings
    outcomes = [check.outcome for check in triage(folder).checks]
    assert sum(outcome in ("passed", "failed") for outcome in outcomes) >= 4, outcomes
    for step in (0, 4, 8, 12):
        facts = facts_of(folder, step)
        assert len(facts) == world
        assert len({each.parameter_hash for each in facts}) == 1
        assert len({each.data_hash for each in facts}) == (world if step else 1)
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, 13))


def test_a_slow_rank_and_a_drifting_one_show(tmp_path):
    codes, said = run({"kind": "ddp", "world": 2, "folder": tmp_path / "run", "slow": 1, "moved": 0})
    assert codes == [[0, 0]], said
    found = read_run(tmp_path / "run")
    assert found.value("rank_facts.step_time").labels == rank_step_time(found).labels
    assert (straggler_ratio(found).values[-2:, 0] > 1.3).all()
    quick, slow = facts_of(tmp_path / "run", 8)
    assert slow.step_time > 0.03 > 2 * quick.step_time
    assert slow.input_time > 0.03 > 2 * quick.input_time
    same = [len({each.parameter_hash for each in facts_of(tmp_path / "run", step)}) == 1 for step in (0, 4, 8, 12)]
    assert same == [True, True, False, False]


def test_ranks_train_the_same_with_and_without(tmp_path):
    common = {"kind": "ddp", "world": 2, "steps": 200}
    pair = [
        {**common, "folder": tmp_path / name, "weights": tmp_path / name, "record": name == "with"} for name in ("with", "not")
    ]
    codes, said = run(*pair)
    assert codes == [[0, 0], [0, 0]], said
    for rank in range(2):
        first, second = (torch.load(tmp_path / f"{name}.{rank}") for name in ("with", "not"))
        assert all(torch.equal(first[name], second[name]) for name in second)


def test_a_rank_that_dies_leaves_whole_files(tmp_path):
    codes, _ = run({"kind": "ddp", "world": 2, "folder": tmp_path / "run", "killed": 1, "every": 2})
    assert codes == [[1, -9]]
    assert [finding.code for finding in validate([tmp_path / "run"]).findings if finding.severity in ("sev0", "sev1")] == []
    assert {len(facts_of(tmp_path / "run", step)) for step in (0, 2, 4)} == {2}
    assert not [*(tmp_path / "run").glob(".*")]


def test_a_rank_resumes_in_the_session_of_the_first(tmp_path):
    common = {"kind": "ddp", "world": 2, "folder": tmp_path / "run", "every": 2, "steps": 4}
    codes, said = run(common, {**common, "start_step": 2})
    assert codes == [[0, 0], [0, 0]], said
    names = sorted(path.name for path in (tmp_path / "run").glob("*step_00000004*"))
    assert [name.removeprefix("analysis_checkpoint_step_00000004.") for name in names] == [
        "json",
        "rank000.json",
        "rank001.json",
        "session000.json",
        "session000.rank000.json",
        "session000.rank001.json",
    ]
    sessions = [msgspec.json.decode((tmp_path / "run" / name).read_bytes(), type=Checkpoint).session for name in names]
    assert sessions == [1, 1, 1, 0, 0, 0]
    assert not validate([tmp_path / "run"]).findings


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.complex64])
def test_a_hash_of_parameters_sees_one_bit_and_not_the_layout(dtype):
    weight = torch.randn(6, 5, dtype=dtype)
    plain = parameter_hash([weight, torch.ones(())])
    assert parameter_hash([weight.t().contiguous().t(), torch.ones(())]) == plain
    weight[3, 2] *= 1.01
    assert parameter_hash([weight, torch.ones(())]) != plain
    assert parameter_hash([]) is None
