"""Healthy trainings that look ill: each is what it says, and nothing of it gets into the files but what a user would say."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from ckaudit.lab.altered_batches import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.controls.datasets import (
    CurriculumLength,
    CurriculumSources,
    HeavyTailed,
    LabelSmoothing,
    PlateauBeforeGrokking,
    RecoveredSmallSpike,
)
from ckaudit.lab.controls.finetuning import FrozenEmbeddings, FrozenTrunkFinetune, SmallLrFinetune
from ckaudit.lab.controls.schedules import LayerwiseLr
from ckaudit.lab.controls.training_loop import Float16Scaler, NoisyEvaluations, ResumedTwice
from ckaudit.lab.specs import controls
from ckaudit.lab.task import Batch, Corpus
from ckaudit.lab.training import Training, facts
from ckaudit.lab.training_spec import SEEDS, setting
from tests.lab.small import SMALL, column, documents, told, trained

ROWS = torch.arange(8)[:, None] * 100 + torch.arange(17)  # (B, T + 1)


def at(step: int, **more: Any) -> Training:
    """A training of which a change looks at the step only."""
    return cast("Training", SimpleNamespace(step=step, plan=SMALL, **more))


def batch() -> Batch:
    return Batch(inputs=ROWS[:, :-1], targets=ROWS[:, 1:])


def log_softmax(logits: torch.Tensor) -> Any:
    """The log of the softmax over the last dimension, in float64."""
    values = logits.double().numpy()
    return values - np.log(np.exp(values).sum(axis=-1, keepdims=True))


def test_there_are_enough_of_them() -> None:
    assert len(controls()) >= 35


@pytest.mark.parametrize("seed", [seed for seeds in SEEDS.values() for seed in seeds])
def test_every_control_has_a_plan_under_every_seed(seed: int) -> None:
    plans = {name: each.change().plan(setting(each.family, seed)) for name, each in controls().items()}
    assert not [name for name, plan in plans.items() if plan.steps < 60 or plan.eval_every > plan.last]


ALONE = [name for name, each in controls().items() if each.family == "gpt" and each.change().plan(SMALL).ranks == 1]


@pytest.mark.parametrize("name", ALONE)
def test_a_control_trains_and_does_not_say_its_name(name: str, tmp_path: Path) -> None:
    trained(controls()[name].change(), tmp_path, stop=3)
    assert all(np.isfinite(loss) for loss in column(tmp_path, "train_loss_raw").values())
    assert name not in (tmp_path / "run.json").read_text()


@pytest.mark.parametrize("name", ["lr_stairs", "warm_restarts", "wsd", "constant_lr", "lr_linear_to_zero", "cosine"])
def test_the_learning_rate_is_the_one_that_the_run_is_told(name: str) -> None:
    for seed in (seed for seeds in SEEDS.values() for seed in seeds):
        plan = controls()[name].change().plan(setting("gpt", seed))
        knots = np.array(facts(plan, cast("Corpus", SimpleNamespace(vocabulary=96)))["planned_learning_rate"])
        steps = range(1, plan.steps + 1)
        rates = np.array([plan.rate(step) for step in steps])
        np.testing.assert_allclose(np.interp(steps, knots[:, 0], knots[:, 1]), rates, atol=0.03 * plan.optimizer.peak)


def test_restarts_end_at_the_bottom() -> None:
    plan = controls()["warm_restarts"].change().plan(setting("gpt", 0))
    top = [step for step in range(1, plan.steps + 1) if plan.rate(step) > 0.99 * plan.optimizer.peak]
    assert plan.rate(plan.steps) < 0.04 * plan.optimizer.peak
    assert len([step for step in top if step - 1 not in top]) == 3


def test_rows_read_from_their_end() -> None:
    turned = backwards(batch(), 3)
    whole = np.concatenate((turned.inputs.numpy()[:, :1], turned.targets.numpy()), axis=1)
    np.testing.assert_array_equal(whole[:3], ROWS.numpy()[:3, ::-1])
    np.testing.assert_array_equal(whole[3:], ROWS.numpy()[3:])
    assert torch.equal(turned.inputs[:, 1:], turned.targets[:, :-1])


def test_rows_become_longer_as_the_configuration_says() -> None:
    change = CurriculumLength()
    change.plan(replace(SMALL, steps=400))
    cut = [change.batch(at(step), batch()).inputs.shape[1] for step in (1, 50, 51, 100, 101, 400)]
    assert cut == [4, 4, 8, 8, 16, 16]
    assert [each["first_step"] for each in change.facts({})["config"]["stages"]] == [1, 51, 101]


def test_sources_come_in_stages_as_the_manifest_says() -> None:
    change = CurriculumSources()
    plan = change.plan(replace(SMALL, data=replace(SMALL.data, length=32, batch_size=8)))
    lines = {}
    for stage in change.facts({})["data_manifest"]["stages"]:
        training = cast("Training", SimpleNamespace(step=stage["first_step"], plan=plan))
        drawn = change.batch(training, Batch(inputs=ROWS[:, :-1], targets=ROWS[:, 1:], id="1/0"))
        assert drawn.source == "+".join(stage["sources"])
        assert drawn.inputs.shape == (8, 32)
        lines[stage["first_step"]] = stage["sources"], set(drawn.slices)
    assert [len(sources) for sources, _ in lines.values()] == [2, 2, 4]
    assert not lines[1][1] & lines[3][1]


def test_hard_rows_come_in_one_of_twelve_batches() -> None:
    changed = [int((HeavyTailed().batch(at(step), batch()).inputs != ROWS[:, :-1]).any(dim=1).sum()) for step in range(1, 1201)]
    count = Counter(changed)
    assert count.keys() == {0, 2}
    assert 60 < count[2] < 140


def test_a_small_spike_is_one_batch() -> None:
    changed = [
        step
        for step in range(1, SMALL.steps + 1)
        if not torch.equal(RecoveredSmallSpike().batch(at(step), batch()).inputs, batch().inputs)
    ]
    assert changed == [12]


def test_repeating_rows_repeat() -> None:
    made = PlateauBeforeGrokking().batch(at(7), batch())
    whole = np.concatenate((made.inputs.numpy()[:, :1], made.targets.numpy()), axis=1)  # (B, 17)
    np.testing.assert_array_equal(whole[:, 5:], whole[:, :-5])
    assert len({tuple(row) for row in whole.tolist()}) == 8


def test_two_resumes_change_nothing(tmp_path: Path) -> None:
    trained(ResumedTwice(), tmp_path / "resumed")
    trained(Change(), tmp_path / "through")
    assert column(tmp_path / "resumed", "train_loss_raw") == column(tmp_path / "through", "train_loss_raw")
    assert [each.get("resumed_from") for each in told(tmp_path / "resumed")["sessions"]] == [None, 5, 15]


def test_a_loss_scale_settles(tmp_path: Path) -> None:
    trained(Float16Scaler(), tmp_path)
    skipped = np.array([step - seen for step, seen in column(tmp_path, "steps_seen").items()])
    assert 1 <= skipped[-1] <= 8
    assert skipped[-1] == skipped[10]


def test_frozen_embeddings_stay_and_the_configuration_says_so(tmp_path: Path) -> None:
    trained(FrozenEmbeddings(), tmp_path)
    run, last = told(tmp_path), documents(tmp_path)[20]
    names = ["tokens.weight", "positions.weight"]
    assert run["config"]["frozen"] == names
    assert [name for name, facts in run["tensors"].items() if not facts["trainable"]] == names
    assert not {name for name in last["weight_deltas"] if name in names and last["weight_deltas"][name]["norm"]}


def test_a_trunk_that_is_frozen_stays(tmp_path: Path) -> None:
    training = trained(FrozenTrunkFinetune(), tmp_path, stop=4)
    moved = {name for name, delta in documents(tmp_path)[4]["weight_deltas"].items() if delta["moved"]}
    expected = {name for name, _ in training.model.named_parameters() if name.startswith(("blocks.1.", "norm.", "head."))}
    assert moved == expected


def test_a_finetuning_begins_with_what_was_learnt(tmp_path: Path) -> None:
    trained(SmallLrFinetune(), tmp_path / "fine", replace(SMALL, steps=80), stop=1)
    trained(Change(), tmp_path / "plain", stop=1)
    fine, plain = (column(tmp_path / name, "train_loss_raw")[1] for name in ("fine", "plain"))
    assert fine < plain - 1


def test_slow_tensors_move_half_as_far_as_fast_ones(tmp_path: Path) -> None:
    trained(LayerwiseLr(), tmp_path / "slow", stop=1)
    trained(Change(), tmp_path / "plain", stop=1)
    slow, plain = (documents(tmp_path / name)[1]["weight_deltas"] for name in ("slow", "plain"))
    assert slow["tokens.weight"]["moved"] == pytest.approx(plain["tokens.weight"]["moved"] * 0.75, rel=1e-3)
    assert slow["blocks.1.attn.q.weight"]["moved"] == pytest.approx(plain["blocks.1.attn.q.weight"]["moved"] * 1.5, rel=1e-3)


def test_smoothed_targets_spread_a_tenth() -> None:
    logits, targets = torch.randn(2, 3, 5), torch.tensor([[0, 1, 2], [3, 4, 0]])
    loss = LabelSmoothing().loss(at(1), logits, Batch(inputs=targets, targets=targets))
    logs = log_softmax(logits)  # (2, 3, 5)
    wanted = np.full(logs.shape, 0.1 / 5) + 0.9 * np.eye(5)[targets.numpy()]
    assert float(loss) == pytest.approx(-(wanted * logs).sum(-1).mean(), rel=1e-5)


def test_each_evaluation_takes_other_rows(tmp_path: Path) -> None:
    change = NoisyEvaluations()
    training = trained(change, tmp_path, replace(SMALL, steps=1))
    values = []
    for training.step in (10, 20, 30, 40):
        values.append(change.evaluate(training)["val_loss"])
    assert values[0] != values[1]
    assert values[2:] == values[:2]  # eight rows are two evaluations
    assert np.mean(values[:2]) == pytest.approx(held_out_loss(training), rel=1e-5)


def held_out_loss(training: Training) -> float:
    """The held-out loss of all rows, by a loop over them."""
    held = training.corpus.held_out()
    with torch.no_grad():
        logs = log_softmax(training.model(held.inputs))  # (B, T, V)
    each = [-logs[row, place, int(target)] for row, targets in enumerate(held.targets) for place, target in enumerate(targets)]
    return float(np.mean(each))
