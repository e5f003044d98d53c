"""What a run says of its origin, against git, pip and the libraries themselves."""

import dataclasses
import json
import subprocess
import sys

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

from ckaudit import Recorder, Writer, __version__
from ckaudit.contract.io.artifact_hash import artifact_hash, text_hash
from ckaudit.recorder.files.manifest import commit, packages_hash, resolved, tokenizer_hash
from ckaudit.recorder.guard import Guard
from ckaudit.validate import validate


def git(folder, *words):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "code"
    (folder / "src/deep").mkdir(parents=True)
    git(folder, "init")
    (folder / "train.py").write_text("pass")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    return folder


def test_the_commit_is_that_of_git_however_it_is_stored(repository, tmp_path):
    head = git(repository, "rev-parse", "HEAD")
    assert commit(repository) == commit(repository / "src/deep") == head
    git(repository, "pack-refs", "--all")
    assert commit(repository) == head
    git(repository, "worktree", "add", "-b", "side/branch", str(tmp_path / "side"))
    (tmp_path / "side/x").write_text("x")
    git(tmp_path / "side", "add", ".")
    git(tmp_path / "side", "commit", "-m", "two")
    assert commit(tmp_path / "side") == git(tmp_path / "side", "rev-parse", "HEAD") != head
    git(repository, "checkout", "--detach")
    assert commit(repository) == head


def test_without_a_repository_or_a_commit_there_is_none(tmp_path):
    (tmp_path / "empty").mkdir()
    git(tmp_path / "empty", "init")
    assert commit(tmp_path / "empty") is None
    (tmp_path / "odd/.git").mkdir(parents=True)
    (tmp_path / "odd/.git/HEAD").write_text("ref: refs/heads/../../../x\n")
    assert commit(tmp_path / "odd") is None


def test_the_packages_are_those_that_pip_lists():
    listed = subprocess.run([sys.executable, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, check=True)
    named = {each["name"].lower().replace("_", "-").replace(".", "-"): each["version"] for each in json.loads(listed.stdout)}
    assert packages_hash() == text_hash("".join(f"{name}=={named[name]}\n" for name in sorted(named)))


@pytest.fixture
def tokenizer():
    made = Tokenizer(models.BPE(unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.train_from_iterator(
        ["so they went and went"], trainers.BpeTrainer(vocab_size=40, special_tokens=["?"], show_progress=False)
    )
    return made


def test_a_tokenizer_has_one_hash_in_memory_and_on_disk(tokenizer, tmp_path):
    from transformers import PreTrainedTokenizerFast

    tokenizer.save(str(tmp_path / "tokenizer.json"), pretty=True)
    found = {tokenizer_hash(tokenizer), tokenizer_hash(tmp_path / "tokenizer.json"), tokenizer_hash(str(tmp_path))}
    assert found == {artifact_hash(tmp_path / "tokenizer.json")}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="?")
    before = tokenizer_hash(fast)
    fast("so they went", truncation=True, max_length=2)
    assert tokenizer_hash(fast) == before
    fast.add_tokens(["new"])
    assert tokenizer_hash(fast) != before


def test_other_tokenizers_are_told_by_their_vocabulary(tmp_path):
    class Slow:
        def __init__(self, vocabulary):
            self.get_vocab = lambda: vocabulary

    assert (
        tokenizer_hash(Slow({"a": 0, "b": 1})) == tokenizer_hash(Slow({"b": 1, "a": 0})) != tokenizer_hash(Slow({"a": 1, "b": 0}))
    )
    for name, text in (("vocab.json", '{"a": 1}'), ("merges.txt", "a b\n"), ("model.safetensors", "weights")):
        (tmp_path / name).write_text(text)
    before = tokenizer_hash(tmp_path)
    (tmp_path / "model.safetensors").write_text("other weights")
    assert tokenizer_hash(tmp_path) == before
    (tmp_path / "merges.txt").write_text("b a\n")
    assert tokenizer_hash(tmp_path) != before
    with pytest.raises(TypeError, match="no tokenizer"):
        tokenizer_hash(5)


def run_json(folder):
    return json.loads((folder / "run.json").read_text())


def test_a_recorded_run_says_what_it_stands_on(tmp_path, tokenizer, monkeypatch, repository):
    @dataclasses.dataclass
    class Config:
        width: int = 4
        dtype: torch.dtype = torch.float32

    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(repository / "src/train.py"), raising=False)
    model = nn.Linear(4, 4)
    model.config = Config()
    (tmp_path / "data.json").write_text('{"shards": ["a", "b"], "filters": ["language"], "dedup": "minhash 0.8"}')
    (tmp_path / "prompts.txt").write_text("one\n")
    facts = {
        "tokenizer": tokenizer,
        "data_manifest": tmp_path / "data.json",
        "eval_artifacts": {"hellaswag": tmp_path / "prompts.txt"},
    }
    Recorder(model, tmp_path / "run", vocabulary=40, planned_steps=9000, decoding={"temperature": 0.0}, **facts).close()
    found = run_json(tmp_path / "run")
    assert found["commit"] == git(repository, "rev-parse", "HEAD") == found["sessions"][0]["commit"]
    assert (found["lock_hash"], found["tokenizer_hash"]) == (packages_hash(), tokenizer_hash(tokenizer))
    assert found["environment"]["torch"] == torch.__version__
    assert (found["environment"]["ckaudit"], found["environment"]["python"]) == (__version__, sys.version.split()[0])
    assert found["model"] == {"width": 4, "dtype": "torch.float32"}
    assert found["data_manifest"] == {
        "file": "data.json",
        "hash": artifact_hash(tmp_path / "data.json"),
        "shards": ["a", "b"],
        "filters": ["language"],
        "dedup": "minhash 0.8",
    }
    assert found["eval_artifact_hashes"] == {"hellaswag": artifact_hash(tmp_path / "prompts.txt")}
    assert found["decoding"] == {"temperature": 0.0}
    assert "tokenizer" not in found
    assert [each.code for each in validate([tmp_path / "run"]).findings if each.code.startswith("MAN")] == []


def test_what_was_given_rules(tmp_path):
    facts = {"commit": "abc", "lock_hash": "sha256:1", "model": {"own": True}, "tokenizer_hash": "sha256:2"}
    with Writer(tmp_path, **facts, data_manifest={"shards": 3}) as writer:
        writer.step(1, loss=1.0)
    found = run_json(tmp_path)
    assert {name: found[name] for name in facts} == facts
    assert found["data_manifest"] == {"shards": 3}


def test_what_fails_is_left_out_and_the_rest_is_kept(tmp_path):
    guard = Guard()
    found = resolved({"tokenizer": tmp_path / "missing", "data_manifest": 5, "eval_artifacts": {"a": tmp_path / "none"}}, guard)
    assert guard.failures == 3
    assert set(found) <= {"commit", "lock_hash", "environment"}
    with pytest.raises(TypeError, match="tokeniser"):
        Writer(tmp_path, tokeniser="x")


@pytest.mark.parametrize(
    ("facts", "scalars", "missing"),
    [
        ({}, {}, {"model=", "data_manifest="}),
        ({"vocabulary": 40}, {}, {"model=", "data_manifest=", "tokenizer="}),
        ({"model": {"a": 1}, "data_manifest": {"a": 1}}, {"val_loss": 1.0}, {"eval_artifacts="}),
        ({"model": {"a": 1}, "data_manifest": {"a": 1}}, {"microbench_score/arc": 1.0}, {"eval_artifacts=", "decoding="}),
        ({"model": {"a": 1}, "data_manifest": {"a": 1}}, {}, set()),
    ],
)
def test_a_gap_is_named_with_what_fills_it_and_only_where_it_is_one(tmp_path, facts, scalars, missing):
    with Writer(tmp_path, commit="abc", planned_steps=2001, **facts) as writer:
        writer.step(1, loss=1.0, **scalars)
        writer.checkpoint(1, weights={"w": torch.zeros(2, 2).numpy()})
    found = [each for each in validate([tmp_path]).findings if each.code == "MAN001"]
    assert [each.severity for each in found] == ["note"] * bool(missing)
    calls = ("commit=", "lock_hash=", "model=", "data_manifest=", "tokenizer=", "eval_artifacts=", "decoding=")
    assert {call for each in found for call in calls if f"({call}" in each.message} == missing


def test_a_trial_is_not_asked(tmp_path):
    for step, told in ((2000, []), (2001, ["MAN001"])):
        with Writer(tmp_path / str(step)) as writer:
            writer.step(step, loss=1.0)
            writer.checkpoint(step, weights={"w": torch.zeros(2, 2).numpy()})
        assert [each.code for each in validate([tmp_path / str(step)]).findings if each.code == "MAN001"] == told


def test_an_imported_run_is_not_asked_for_what_nobody_could_know(tmp_path):
    (tmp_path / "run.json").write_text(
        '{"schema_version": "ck.run.v1", "source": "wandb", "planned_steps": 9000, "sessions": [{"start": 1}]}'
    )
    (tmp_path / "scalars.jsonl").write_text('{"step": 1, "val_loss": 1.0}\n')
    assert [each.code for each in validate([tmp_path]).findings if each.code == "MAN001"] == []
