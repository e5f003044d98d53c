"""What run.json says of a run, as a fleet keeps it."""

import json

from ckaudit.fleet.audit_run import MAX_FACTS, MAX_LENGTH, facts_of
from ckaudit.run.read import read_run


def facts(folder, **fields):
    manifest = {"schema_version": "ck.run.v1"} | fields
    (folder / "run.json").write_text(json.dumps(manifest))
    hashes = [{"step": step, "train_loss_raw": 1.0, "input_hash": f"h{step * fields.get('seed', 1)}"} for step in range(1, 20)]
    (folder / "scalars.jsonl").write_text("\n".join(map(json.dumps, hashes)))
    return facts_of(read_run(folder))


def test_nested_values_have_names_with_dots_and_keep_their_text(tmp_path):
    found = facts(
        tmp_path, config={"optimizer": {"lr": 1e-4, "betas": [0.9, 0.99]}, "note": "a, b", "fp16": True}, seed=3, commit="ab"
    )
    assert found["config.optimizer.lr"] == "0.0001"
    assert found["config.optimizer.betas"] == "[0.9, 0.99]"
    assert (found["config.note"], found["config.fp16"], found["seed"], found["git.commit"]) == ("a, b", "true", "3", "ab")


def test_sessions_say_where_a_run_was_trained(tmp_path):
    sessions = [
        {"start": 5.0, "node": "n1", "accelerator": "H200 GPU-1"},
        {"start": 9.0, "node": "n2"},
        {"start": 11.0, "node": "n1"},
    ]
    found = facts(tmp_path, sessions=sessions, environment={"hostname": "other", "torch": "2.13"})
    assert (found["node"], found["device"], found["start"], found["sessions"]) == ("n1, n2", "H200 GPU-1", "5.0", "3")
    assert found["environment.torch"] == "2.13"
    del sessions[:]
    assert facts(tmp_path, environment={"hostname": "other"})["node"] == "other"


def test_the_order_of_the_data_is_equal_where_batches_are(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, again, other = facts(tmp_path / "a", seed=1), facts(tmp_path / "b", seed=1), facts(tmp_path / "b", seed=2)
    assert first["data_order"] == again["data_order"] != other["data_order"]


def test_a_huge_configuration_leaves_the_rest_alone(tmp_path):
    found = facts(tmp_path, config={f"key-{number:04}": "x" * 1000 for number in range(1000)}, seed=1, commit="ab")
    assert len(found) == MAX_FACTS
    assert max(map(len, found.values())) == MAX_LENGTH
    assert (found["seed"], found["git.commit"]) == ("1", "ab")
