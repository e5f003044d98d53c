"""Other tools: what they are given, how their answers are read, what their words mean."""

import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.peers import installed, runmedic, runwise, trainproof
from benchmarks.peers.__main__ import main
from benchmarks.peers.peer import Peer, PeerVerdict, ask, meaning, write_log
from benchmarks.peers.score import is_right, peer_score
from ckaudit.cli.run import run
from ckaudit.errors import UsageError
from ckaudit.lab.labels import SYMPTOMS, TRUTHS
from ckaudit.lab.specs import faults

FIXTURES = Path(__file__).parents[2] / "fixtures"
RUNS, RECORDINGS = FIXTURES / "runs", FIXTURES / "lab"


def test_a_log_has_the_names_that_readers_of_logs_know(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl").write_text(
        '{"schema_version":"ck.scalars.v1","step":1,"time":1700000000.5,"train_loss_raw":2.5,"learning_rate":0.1,"batch_hash":"x"}\n'
        '{"step":2,"train_loss_raw":"NaN","val_loss":2.0,"grad_global_norm":"Infinity","step_time":0.5,"dataloader_stall_frac":0.2}\n'
        '{"step":3,"train_lo'
    )
    write_log(tmp_path, tmp_path / "log.jsonl")
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert json.loads(lines[0]) == {"step": 1, "timestamp": 1700000000.5, "loss": 2.5, "lr": 0.1}
    assert lines[1] == (
        '{"step": 2, "loss": NaN, "val_loss": 2.0, "grad_norm": Infinity, "step_time": 0.5, "loader_time": 0.1, "data_time": 0.1}'
    )
    assert len(lines) == 2


def test_trainproof_says_its_verdict_and_failures_first() -> None:
    findings = [
        {"id": "TP-GRAD-SPIKE", "level": "WARN", "message": "Gradient norm spikes detected."},
        {"id": "TP-NAN", "level": "FAIL", "message": "NaN or Inf detected in loss."},
        {"id": "TP-THROUGHPUT", "level": "INFO", "message": "Throughput measured."},
    ]
    level, messages = trainproof.read(json.dumps({"reports": [{"verdict": "FAIL", "findings": findings}]}))
    assert level == "fail"
    assert meaning(messages, trainproof.MEANS) == ("nonfinite_operation", "learning_rate_too_high")
    assert trainproof.read('{"reports": [{"verdict": "PASS", "findings": []}]}') == ("clean", [])


def test_runmedic_names_causes_of_what_counts() -> None:
    findings = [
        {"severity": "info", "title": "Mild overfitting", "likely_causes": ["The model memorizes the training set"]},
        {"severity": "warning", "title": "Spikes", "likely_causes": ["Individual bad batches: x", "Learning rate too high: y"]},
        {"severity": "critical", "title": "Slow", "likely_causes": []},
    ]
    level, messages = runmedic.read(json.dumps([{"findings": findings}]))
    assert (level, messages) == ("fail", ["Slow", "Individual bad batches: x", "Learning rate too high: y"])
    assert meaning(messages, runmedic.MEANS) == ("bad_batch", "learning_rate_too_high")
    assert runmedic.read(json.dumps([{"findings": findings[:1]}])) == ("clean", [])


def test_runwise_says_messages_in_its_own_order() -> None:
    assert runwise.read('[["warning", "Plateau: x"], ["critical", "NaN detected in loss"]]')[0] == "fail"
    assert runwise.read('[["warning", "Plateau: x"]]') == ("warn", ["Plateau: x"])
    assert runwise.read("[]") == ("clean", [])


@pytest.mark.parametrize("module", [trainproof, runmedic, runwise])
def test_words_mean_truths_of_the_lab(module) -> None:
    assert {truth for _, truth in module.MEANS} <= TRUTHS.keys()
    assert {symptom for _, symptom in module.SHOWS} <= SYMPTOMS.keys()


def test_a_message_means_what_a_pattern_of_it_says_once() -> None:
    means = [("lr too high", "learning_rate_too_high")]
    assert meaning(["loss is NaN", "LR too high", "lr too high"], means) == ("learning_rate_too_high",)


def peer(script: str) -> Peer:
    return Peer(
        name="echo",
        reads="log",
        version="1",
        python=sys.executable,
        means=(("diverged", "learning_rate_too_high"),),
        arguments=lambda log: ["-c", script, str(log)],
        read=runwise.read,
    )


COUNTING = 'import sys; print(\'[["warning", "diverged after %d steps"]]\' % len(open(sys.argv[1]).readlines()))'


def test_a_peer_runs_in_its_own_interpreter_and_leaves_the_run_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "scalars.jsonl").write_bytes((RUNS / "overfit_tiny" / "scalars.jsonl").read_bytes())
    verdict = ask(peer(COUNTING), tmp_path)
    assert verdict == PeerVerdict(
        level="warn", causes=("learning_rate_too_high",), messages=("diverged after 600 steps",), version="1"
    )
    assert [file.name for file in tmp_path.iterdir()] == ["scalars.jsonl"]
    assert ask(peer("raise SystemExit('no')"), tmp_path).level == "error"
    assert ask(replace(peer(""), python="/nowhere/python"), tmp_path).level == "error"


def test_an_interpreter_without_them_is_told() -> None:
    with pytest.raises(UsageError, match="cannot be run"):
        installed("/nowhere/python")
    with pytest.raises(UsageError, match="none of trainproof, runmedic, runwise"):
        installed(sys.executable)


def test_a_peer_is_scored_by_its_alarms() -> None:
    ill = faults()["lr_too_high"]
    right = PeerVerdict(level="fail", causes=("bad_batch", "learning_rate_too_high"))
    heard = [
        (ill, right),
        (ill, PeerVerdict(level="clean")),
        (ill, PeerVerdict(level="error")),
        (None, PeerVerdict(level="warn")),
        (None, PeerVerdict(level="clean")),
    ]
    found = peer_score(peer(""), heard)
    assert (found.right_kind.hits, found.right_kind.of) == (1, 3)
    assert [(each.hits, each.of) for each in (found.failed, found.flagged, found.first_right, found.top3)] == [
        (1, 3),
        (1, 3),
        (0, 3),
        (1, 3),
    ]
    assert [(each.hits, each.of) for each in (found.healthy_failed, found.healthy_flagged)] == [(0, 2), (1, 2)]
    assert found.errors == 1


@pytest.mark.parametrize(
    ("verdict", "right"),
    [
        (PeerVerdict(level="warn", symptoms=("overfitting", "loss_spike")), True),
        (PeerVerdict(level="warn", causes=("bad_batch", "missing_warmup")), True),
        (PeerVerdict(level="warn", causes=("bad_batch",), symptoms=("overfitting",)), False),
        (PeerVerdict(level="clean"), False),
    ],
)
def test_an_alarm_of_a_peer_is_right_by_symptom_truth_or_what_may_be_taken_for_it(verdict: PeerVerdict, *, right: bool) -> None:
    assert is_right(verdict, faults()["lr_too_high"]) == right


def test_an_interpreter_that_cannot_be_run_ends_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["score", "--peers", "/nowhere/python"]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("error: --peers: /nowhere/python cannot be run")
    assert "hint: name a Python interpreter" in err


def test_others_are_scored_beside_ours(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("benchmarks.peers.__main__.installed", lambda _: [peer(COUNTING)])
    arguments = ["--cache", str(RECORDINGS), "--only", "lr_too_high.0", "--format", "json"]
    assert main(["score", "--peers", "python", *arguments]) == 0
    compared = json.loads(capfd.readouterr().out)
    assert run(["lab", "score", *arguments]) == 0
    alone = json.loads(capfd.readouterr().out)
    tools = compared["boards"][0].pop("peers")
    assert [(tool["name"], tool["runs"], tool["first_right"]["hits"]) for tool in tools] == [("ckaudit", 1, 1), ("echo", 1, 1)]
    assert alone["boards"][0].pop("peers") == []
    assert compared == alone
