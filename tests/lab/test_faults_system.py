"""Faults of system and records: each does what it says to a training or its files, and nothing else."""

from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.faults import systems
from ckaudit.lab.faults.checkpoints import CkptMissing, CkptTruncated, PercentileLevels, RecordingEveryStep, checkpoints
from ckaudit.lab.faults.metrics import EmaWrong, EvalHashChange, EvalSetChanged, MfuWrongPeak, NanHidden, PplBase2
from ckaudit.lab.faults.systems import DataloaderStall, ReplicaDesync, StepTimeCliff, StragglerRank, ZeroComm
from ckaudit.lab.specs import faults
from ckaudit.lab.training import Training
from tests.lab.small import SMALL, column, documents, told, trained


class OnOneRank(Change):
    """A change to several ranks, made to one."""

    def __init__(self, change: Change) -> None:
        super().__init__()
        self.model, self.batch, self.gradients = change.model, change.batch, change.gradients  # type: ignore[method-assign]


MINE = [name for name, each in faults().items() if each.group in ("system", "records")]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy run to compare with."""
    folder = tmp_path_factory.mktemp("plain")
    trained(Change(), folder)
    return folder


def losses(folder: Path) -> dict[int, Any]:
    return column(folder, "train_loss_raw")


@pytest.mark.parametrize("name", MINE)
def test_the_splits_differ(name: str) -> None:
    assert faults()[name].dev != faults()[name].test


def test_a_stalled_loader_sleeps_before_every_step(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    monkeypatch.setattr(systems, "sleep", naps.append)
    clock = iter(range(1000))
    monkeypatch.setattr(systems, "perf_counter", lambda: float(next(clock)))  # one second from look to look
    trained(DataloaderStall(onset=5, strength=3), tmp_path)
    assert naps == [3.0] * 16
    assert losses(tmp_path) == losses(plain)


def test_work_for_nothing_leaves_no_gradient() -> None:
    weight = torch.ones(3, requires_grad=True)
    loss, passes = (weight * 2).sum(), []
    cast("Any", loss.grad_fn).register_hook(lambda *_: passes.append(1))
    model = SimpleNamespace(parameters=lambda: [weight])
    StepTimeCliff(onset=3, strength=4).backward(cast("Training", SimpleNamespace(step=3, model=model)), loss)
    assert len(passes) == 5
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0] * 3


@pytest.mark.parametrize(("rank", "passes"), [(0, 0), (1, 30)])
def test_a_straggler_goes_forward_more_often(rank: int, passes: int, plain: Path, tmp_path: Path) -> None:
    change, seen = StragglerRank(onset=11, strength=3), []
    training = Training(replace(SMALL, ranks=1), OnOneRank(change), tmp_path)
    training.rank = rank
    change._copy.register_forward_hook(lambda *_: seen.append(1))
    training.run()
    assert len(seen) == passes
    assert rank or losses(tmp_path) == losses(plain)


def test_longer_steps_have_the_same_losses(plain: Path, tmp_path: Path) -> None:
    trained(StepTimeCliff(onset=10, strength=2), tmp_path)
    assert losses(tmp_path) == losses(plain)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_norms_of_one_rank_are_clipped_differently(rank: int, tmp_path: Path) -> None:
    training = trained(Change(), tmp_path, stop=1)
    training.step, training.rank = 7, rank
    before = {name: weight.grad.clone() for name, weight in training.model.named_parameters() if weight.grad is not None}
    total = float(np.sqrt(sum(float((grad.double() ** 2).sum()) for grad in before.values())))
    ReplicaDesync(onset=7, strength=4).clip(training)
    factors = {
        name: float(weight.grad.norm() / before[name].norm())
        for name, weight in training.model.named_parameters()
        if weight.grad is not None
    }
    expected = {name: min(1.0, 1 / total) * (4 if rank and "norm" in name else 1) for name in before}
    assert factors == pytest.approx(expected, rel=1e-4)


def test_the_share_of_tensors_that_is_lost(plain: Path, tmp_path: Path) -> None:
    lossy = ZeroComm(onset=8, strength=0.3)
    assert lossy.plan(SMALL).ranks == 2
    trained(OnOneRank(lossy), tmp_path)
    found, healthy = documents(tmp_path), documents(plain)
    lost = {step: [tensor["norm"] == 0 for tensor in found[step]["gradients"].values()] for step in (10, 20)}
    assert 0.1 < np.mean(lost[10] + lost[20]) < 0.5
    assert lost[10] != lost[20]
    assert not any(tensor["norm"] == 0 for tensor in healthy[10]["gradients"].values())
    assert {step: loss for step, loss in losses(tmp_path).items() if step <= 8} == {
        step: loss for step, loss in losses(plain).items() if step <= 8
    }


@pytest.mark.parametrize("seed", [0, 1, 2, 10, 11])
def test_a_lost_gradient_is_seen_in_some_checkpoint(seed: int) -> None:
    from random import Random

    from ckaudit.contract.cadence import is_due
    from ckaudit.lab.models import build
    from ckaudit.lab.training_spec import setting, split_of

    plan, made = setting("gpt", seed), getattr(faults()["zero_comm"], split_of(seed))
    count = len(list(build(plan.model, vocabulary=96, length=plan.data.length).parameters()))
    lost = {
        step: sum(draw.random() < made.strength for _ in range(count))
        for step in range(max(1, made.onset), plan.steps + 1)
        if is_due(step) and (draw := Random(f"{seed}/lost/{step}"))
    }
    assert sum(lost.values()) >= 3


def test_a_loss_that_is_not_a_number_is_shown_as_zero(plain: Path, tmp_path: Path) -> None:
    trained(NanHidden(onset=8, strength=3), tmp_path)
    shown = losses(tmp_path)
    assert [step for step, loss in shown.items() if loss == 0] == [8, 9, 10]
    assert [step for step, norm in column(tmp_path, "grad_global_norm").items() if norm == "NaN"] == [8, 9, 10]
    assert all(0 < shown[step] < 5 for step in range(11, 21))
    assert {step: shown[step] for step in range(1, 8)} == {step: losses(plain)[step] for step in range(1, 8)}


def test_a_checkpoint_is_cut_off(plain: Path, tmp_path: Path) -> None:
    trained(CkptTruncated(onset=10, strength=0.7), tmp_path)
    sizes, whole = ({step: path.stat().st_size for step, path in checkpoints(folder).items()} for folder in (tmp_path, plain))
    assert sizes.keys() == whole.keys()
    assert sizes[10] == pytest.approx(0.7 * whole[10], rel=0.02)
    with pytest.raises(Exception, match="ends"):
        documents(tmp_path)


def test_checkpoints_are_gone(tmp_path: Path) -> None:
    trained(CkptMissing(onset=10, strength=1), tmp_path)
    assert list(checkpoints(tmp_path)) == [0, 20]


def test_percentiles_become_levels(plain: Path, tmp_path: Path) -> None:
    trained(PercentileLevels(onset=10), tmp_path)
    found, healthy = documents(tmp_path), documents(plain)
    levels = [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]
    assert all(tensor["percentiles"] == levels for step in (10, 20) for tensor in found[step]["weights"].values())
    for step in (0, 10):
        for name, tensor in found[step]["weights"].items():
            other = healthy[step]["weights"][name]
            kept = {"percentiles"} if step else set()
            assert {key: value for key, value in tensor.items() if key not in kept} == {
                key: value for key, value in other.items() if key not in kept
            }


@pytest.mark.parametrize("change", [EvalHashChange(onset=10, strength=0.1), EvalSetChanged(onset=10, strength=0.5)])
def test_another_evaluation_has_another_hash_and_score(change: Change, plain: Path, tmp_path: Path) -> None:
    training = trained(change, tmp_path)
    label = "tokenizer" if isinstance(change, EvalHashChange) else "held_out"
    hashes, values = column(tmp_path, f"eval_artifact_hash/{label}"), column(tmp_path, "val_loss")
    assert list(hashes) == [5, 10, 15, 20]
    assert hashes[5] != hashes[10] == hashes[15] == hashes[20]
    assert values[5] == column(plain, "val_loss")[5]
    assert values[20] != column(plain, "val_loss")[20]
    assert losses(tmp_path) == losses(plain)
    if label == "held_out":
        rows = training.corpus.held_out().inputs.numpy().tobytes()
        assert hashes[5] == f"sha256:{sha256(rows).hexdigest()}"


def test_tokens_that_change_places() -> None:
    counts = {1: 900, 2: 15, 3: 14, 4: 13, 5: 12, 6: 11, 7: 35}
    inputs = torch.tensor([token for token, count in counts.items() for _ in range(count)])
    training = cast("Training", SimpleNamespace(step=10, corpus=SimpleNamespace(vocabulary=9)))
    table = EvalHashChange(onset=10, strength=0.05)._table(training, inputs)
    assert table.tolist() == [0, 1, 3, 2, 5, 4, 6, 7, 8]  # 29 of 1000 are not enough, 54 are


def test_a_peak_that_is_too_low(tmp_path: Path) -> None:
    training = trained(MfuWrongPeak(strength=200), tmp_path, stop=2)
    run = told(tmp_path)
    assert run["peak_flops"] == pytest.approx(5e8)
    assert run["flops_per_token"] == 6 * sum(weight.numel() for weight in training.model.parameters())


def test_a_perplexity_in_base_2(tmp_path: Path) -> None:
    trained(PplBase2(onset=10, strength=2), tmp_path)
    values, perplexities = column(tmp_path, "val_loss"), column(tmp_path, "val_ppl")
    assert perplexities == pytest.approx({5: np.exp(values[5]), **{step: 2 ** values[step] for step in (10, 15, 20)}}, rel=1e-6)


def test_an_average_that_remembers_too_long(plain: Path, tmp_path: Path) -> None:
    trained(EmaWrong(strength=0.999), tmp_path)
    assert losses(tmp_path) == losses(plain)
    raw, average = np.array(list(losses(plain).values())), np.array(list(column(tmp_path, "train_loss_ema").values()))
    weights = [0.999**19] + [0.001 * 0.999 ** (19 - step) for step in range(1, 20)]
    assert average[-1] == pytest.approx(float(np.dot(weights, raw)), rel=1e-6)
    assert told(tmp_path)["loss_ema_beta"] == 0.98


def test_a_checkpoint_at_every_second_step(tmp_path: Path) -> None:
    trained(RecordingEveryStep(strength=2), tmp_path, stop=7)
    assert list(checkpoints(tmp_path)) == [0, 2, 4, 6, 7]


@pytest.mark.parametrize("name", MINE)
def test_a_fault_does_not_say_its_name(name: str) -> None:
    made = faults()[name]
    change = made.change(made.dev.onset, made.dev.strength)
    told_by = change.plan(replace(SMALL, ranks=1)), change.facts({}) if name != "mfu_wrong_peak" else {}
    assert name not in str(msgspec.to_builtins(told_by))
