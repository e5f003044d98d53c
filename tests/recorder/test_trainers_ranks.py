"""The callbacks of trainers in two processes, against the same training in one."""

import json

import msgspec
import pytest
import torch

from ckaudit.contract.schema.checkpoint import Checkpoint
from tests.forked import training
from tests.recorder.alike import differences, merged
from tests.recorder.trained import assert_sound


@pytest.mark.parametrize("trainer", ["huggingface", "lightning"])
def test_a_trainer_on_two_ranks_records_what_it_does_on_one(trainer, tmp_path):
    done = training("tests.recorder.trainers_on_ranks", trainer, tmp_path)
    assert done.returncode == 0, done.stderr
    found, expected = merged(tmp_path / "two"), merged(tmp_path / "one")
    assert [each["step"] for each in found.values()] == [0, 5, 10]
    for name, document in expected.items():
        assert not [*differences(found[name], document)], name
    assert {each["gradients_source"] for each in found.values() if each["step"]} == {"pre_clip"}
    assert_sound(tmp_path / "two", judged=3)
    for step in (5, 10):
        facts = facts_of(tmp_path / "two", step)
        assert len({each.parameter_hash for each in facts}) == 1
        assert len({each.data_hash for each in facts}) == len(facts) == 2
    manifest = json.loads((tmp_path / "two" / "run.json").read_bytes())
    assert manifest["sessions"][-1]["world_size"] == 2
    for rank in range(2):
        recorded, bare = (torch.load(tmp_path / f"{name}.{rank}") for name in ("two", "bare"))
        assert all(map(torch.equal, recorded, bare))


def facts_of(folder, step):
    """Return the facts of every rank at a step."""
    paths = sorted(folder.glob(f"analysis_checkpoint_step_{step:08d}.rank*.json"))
    return [msgspec.json.decode(path.read_bytes(), type=Checkpoint).rank_facts for path in paths]
