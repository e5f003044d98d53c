"""What peers said in the loop: kept beside the recordings, read by its words, scored on the same runs as ours."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from benchmarks.peers import peer_cache, train_many
from benchmarks.peers.__main__ import main
from benchmarks.peers.in_loop import InLoopPeer, known, verdict_of
from benchmarks.peers.peer import PeerVerdict
from benchmarks.peers.peer_cache import cached_recording, is_due, path_of, peer_verdicts
from benchmarks.peers.score import rivals
from benchmarks.peers.torch_audit import TORCH_AUDIT
from benchmarks.peers.torchmortem import TORCHMORTEM
from benchmarks.peers.trainscope import TRAINSCOPE
from benchmarks.peers.watched import Told
from ckaudit.errors import UsageError
from ckaudit.lab.labels import TRUTHS
from ckaudit.lab.record import FinishedTraining
from ckaudit.lab.score.scoreboard import board
from ckaudit.lab.score.verdict import AuditVerdict, SeenFinding, of_control, of_fault
from ckaudit.lab.specs import faults
from ckaudit.lab.training_spec import recipe
from ckaudit.reports.lab import cells

WHAT = recipe("lr_too_high", 0)
VERSIONS = {"torchmortem": "0.1.1", "trainscope": "1.8.1"}
TOLD = Told(found={"torchmortem": [("critical", "Exploding gradients detected: x"), ("info", "y")]}, errors={"trainscope": "no"})


@pytest.mark.parametrize("peer", known(), ids=lambda each: each.name)
def test_words_mean_truths_of_the_lab(peer: InLoopPeer) -> None:
    assert {truth for _, truth in peer.means} <= TRUTHS.keys()


@pytest.mark.parametrize(
    ("peer", "found", "level", "causes", "alarms"),
    [
        (
            TORCHMORTEM,
            [
                ("critical", "Activation saturation in blocks.0.attn.q: 95% of activations in blocks.0.attn.q are saturated"),
                ("critical", "Update ratio too high in norm: Median update/weight ratio in norm is 1.1e-01"),
                ("warning", "Rank collapse in head: Effective rank in head dropped from 26.7 to 10.5 (39% of initial)"),
                ("warning", "Weight norm explosion: Weight norms grew by up to 49x in 19 layer(s) during training."),
                ("info", "Catapult phase detected: Loss spiked to 1.394e+01 at step 6, then recovered within 2 steps."),
            ],
            "fail",
            ("saturating_activation", "learning_rate_too_high", "missing_warmup", "weight_decay_too_high", "capacity_too_small"),
            4,
        ),
        (
            TORCHMORTEM,
            [
                ("insight", "Gradient starvation causing unit death: Vanishing gradients are starving downstream layers"),
                ("critical", "Dead units in blocks.0.mlp.act: 100% of units in blocks.0.mlp.act are persistently dead"),
                ("warning", "Gradient stalling in blocks.0.mlp_norm: Layer 'blocks.0.mlp_norm' had near-zero gradient norm"),
            ],
            "fail",
            ("dead_units", "residual_path_broken", "gradient_path_cut", "dead_path"),
            3,
        ),
        (TORCHMORTEM, [("info", "Catapult phase detected: Loss spiked to 1.394e+01 at step 6")], "clean", (), 0),
        (TRAINSCOPE, [("signal", "loss crossed at step 40")], "warn", ("learning_rate_too_high",), 1),
        (TRAINSCOPE, [], "clean", (), 0),
        (
            TORCH_AUDIT,
            [
                ("WARN", "TA403 Weight decay (0.1) enabled on Embedding parameter 'tokens.weight'."),
                ("WARN", "TA402 Weight decay (0.1) enabled on Norm parameter 'norm.weight'."),
                ("INFO", "TA203 Model is 100.0% FP32. Consider using AMP or BFloat16 for speed."),
            ],
            "warn",
            (),
            2,
        ),
        (TORCH_AUDIT, [("INFO", "TA203 Model is 100.0% FP32. Consider using AMP or BFloat16 for speed.")], "clean", (), 0),
    ],
)  # those that are not clean were said of trainings of the lab
def test_what_real_ones_say_is_read(
    peer: InLoopPeer, found: list[tuple[str, str]], level: str, causes: tuple[str, ...], alarms: int
) -> None:
    verdict = verdict_of(peer, found, version="1")
    assert (verdict.level, verdict.causes, len(verdict.messages)) == (level, causes, alarms)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    pytest.importorskip("torch")
    from benchmarks.peers.train_with_peers import keep

    keep(tmp_path, WHAT, TOLD, VERSIONS)
    return tmp_path


def test_what_was_said_is_kept_in_its_own_words_and_read_when_it_is_scored(cache: Path) -> None:
    entry, ride = cached_recording(cache, WHAT)
    assert (entry.state, ride and sorted(ride.heard)) == ("fresh", ["torchmortem", "trainscope"])
    found = peer_verdicts(cache, WHAT, known())
    assert found == {
        "torchmortem": PeerVerdict(
            level="fail",
            causes=("learning_rate_too_high", "init_too_large"),
            messages=("Exploding gradients detected: x",),
            version="0.1.1",
        ),
        "trainscope": PeerVerdict(level="error", messages=("no",), version="1.8.1"),
    }


def test_what_is_missing_torn_or_of_another_training_is_due(cache: Path) -> None:
    assert not is_due(cache, WHAT, VERSIONS)
    assert not is_due(cache, WHAT, {"torchmortem": "0.1.1"})
    assert is_due(cache, WHAT, VERSIONS | {"torch-audit": "0.3.0"})
    assert is_due(cache, WHAT, VERSIONS | {"trainscope": "1.8.2"})
    assert is_due(cache, recipe("healthy", 0), VERSIONS)
    later = replace(WHAT, plan=replace(WHAT.plan, steps=500))
    assert cached_recording(cache, later)[0].state == "stale"
    assert is_due(cache, later, VERSIONS)
    assert peer_verdicts(cache, later, known()) == {}
    path_of(cache, WHAT).write_bytes(path_of(cache, WHAT).read_bytes()[:-20])
    assert cached_recording(cache, WHAT)[0].state == "unreadable"
    assert is_due(cache, WHAT, VERSIONS)


def test_a_peer_that_was_attached_in_another_way_is_not_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = peer_cache.adapter
    monkeypatch.setattr(peer_cache, "adapter", lambda peer: "another" if peer is TRAINSCOPE else before(peer))
    assert list(peer_verdicts(cache, WHAT, known())) == ["torchmortem"]
    assert is_due(cache, WHAT, VERSIONS)


def test_a_table_of_words_is_no_part_of_how_a_peer_is_attached(tmp_path: Path) -> None:
    one, other, third = (tmp_path / name for name in ("one.py", "other.py", "third.py"))
    one.write_text('"""A."""\nMEANS = (("a", "b"),)\n\nclass Watch:\n    """B."""\n    every = 1\n')
    other.write_text("MEANS = ()\n\nclass Watch:\n    every = 1  # always\n")
    third.write_text("MEANS = ()\n\nclass Watch:\n    every = 2\n")
    assert peer_cache._adapter(one) == peer_cache._adapter(other) != peer_cache._adapter(third)


def test_the_table_says_over_how_many_runs_each_was_scored() -> None:
    fault = faults()["lr_too_high"]
    verdicts = {("lr_too_high", 0): {"trainscope": PeerVerdict(level="warn", version="1.8.1")}, ("lr_too_high", 1): {}}
    outcomes = [of_fault(fault, seed, 0, AuditVerdict()) for seed in (0, 1)]
    table = cells.peers(replace(board("dev", outcomes, []), peers=rivals(verdicts, outcomes, [], [], bare=False)), interval=False)
    assert [row[1:5] for row in table] == [
        ("reads", "runs", "fails", "or warns"),
        ("run folder", "2", "0 %", "0 %"),
        ("run folder", "1", "0 %", "0 %"),
        ("in the loop", "1", "0 %", "100 %"),
    ]
    assert table[3][0] == "trainscope 1.8.1"


def test_an_interpreter_without_them_is_told() -> None:
    with pytest.raises(UsageError, match="--in-loop: /nowhere/python cannot be run"):
        train_many.attachable("/nowhere/python")
    if not train_many.versions(sys.executable, ["torchmortem", "trainscope", "torch-audit"]):
        with pytest.raises(UsageError, match="none of torchmortem, trainscope, torch-audit"):
            train_many.attachable(sys.executable)


def test_an_interpreter_that_cannot_train_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train_many, "versions", lambda *_, **__: {"torchmortem": "1"})
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'torch'\" >&2\nexit 1\n")
    python.chmod(0o700)
    with pytest.raises(UsageError, match="cannot train: ModuleNotFoundError: No module named 'torch'"):
        train_many.attachable(str(python))


def test_trainings_that_fail_or_are_not_ours_are_told(cache: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$3" = healthy ] && exit 3\nexit 0\n')
    python.chmod(0o700)
    done: list[FinishedTraining] = []
    names = [WHAT, recipe("healthy", 0), recipe("cosine", 0)]
    assert train_many.gather(str(python), names, cache, jobs=2, on_done=done.append) == done
    errors = {each.name: each.error for each in done}
    assert errors == {
        "lr_too_high": "",
        "healthy": "its process ended with 3",
        "cosine": f"what {python} trained is not as it is here: missing",
    }


def test_the_command_says_what_it_does(cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    def gather(python: str, recipes: list[object], *_: object, on_done: object, **__: object) -> list[FinishedTraining]:
        return [FinishedTraining(name=each.name, seed=each.seed, seconds=1.0, size=9) for each in recipes]  # type: ignore[attr-defined]

    monkeypatch.setattr(train_many, "attachable", lambda _: VERSIONS)
    monkeypatch.setattr(train_many, "gather", gather)
    arguments = ["record", "--in-loop", "python", "--cache", str(cache), "--only"]
    assert main([*arguments, "lr_too_high.0,healthy.0"]) == 0
    told = capfd.readouterr().err
    assert "1 of 2 trainings to do with torchmortem 0.1.1, trainscope 1.8.1 attached" in told
    assert "1 recorded, 0 failed" in told
    assert main([*arguments, "lr_too_high.0"]) == 0
    assert "0 of 1 trainings" in capfd.readouterr().err


def test_ours_is_scored_again_on_the_runs_where_others_were_in_the_loop() -> None:
    fault = faults()["lr_too_high"]
    spike = AuditVerdict(seen=(SeenFinding(words=("loss_spike",), severity="sev1", first=200),), causes=(fault.truth,))
    outcomes = [of_fault(fault, 0, 0, spike), of_fault(fault, 1, 0, AuditVerdict())]
    controls = [of_control("healthy", 0, (), AuditVerdict())]
    alarm = {"torchmortem": PeerVerdict(level="fail", causes=(fault.truth,), version="0.1.1")}
    some = {("lr_too_high", 0): alarm, ("lr_too_high", 1): {}, ("healthy", 0): alarm}
    rows = rivals(some, outcomes, controls, [], bare=False)
    assert [(row.name, row.runs, row.failed.hits, row.failed.of) for row in rows] == [
        ("ckaudit", 3, 1, 2),
        ("ckaudit", 2, 1, 1),
        ("torchmortem", 2, 1, 1),
    ]
    assert rows[2].healthy_failed.hits == 1
    whole = dict.fromkeys(some, alarm)
    assert [row.name for row in rivals(whole, outcomes, controls, [], bare=False)] == ["ckaudit", "torchmortem"]
    assert rivals({run: {} for run in some}, outcomes, controls, [], bare=False) == []
