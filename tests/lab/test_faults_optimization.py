"""Faults of optimization do what they say, from their onset on and not before."""

import json
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from ckaudit.lab.training import Training
from tests.lab.small import made
from tests.lab.watched import PLAN, built, gradients, watched, weights

PEAK = 0.012  # of the small plan: warm-up of 2 steps, then a line to zero at step 12


def rate(training: Training) -> float:
    return training.optimizer.param_groups[0]["lr"]


def norm(tensors: dict[str, Tensor]) -> float:
    return sum(float(each.double().square().sum()) for each in tensors.values()) ** 0.5


@pytest.mark.parametrize(
    ("name", "onset", "strength", "expected"),
    [
        ("healthy", 0, 1.0, [0.5, 1.0, 0.9, 0.8, 0.7, 0.6]),
        ("lr_too_high", 0, 3.0, [1.5, 3.0, 2.7, 2.4, 2.1, 1.8]),
        ("lr_high", 0, 3.0, [1.5, 3.0, 2.7, 2.4, 2.1, 1.8]),
        ("lr_mildly_high", 0, 2.0, [1.0, 2.0, 1.8, 1.6, 1.4, 1.2]),
        ("lr_low", 0, 0.1, [0.05, 0.1, 0.09, 0.08, 0.07, 0.06]),
        ("lr_too_low", 0, 0.01, [0.005, 0.01, 0.009, 0.008, 0.007, 0.006]),
        ("lr_zero", 0, 1.0, [0.0] * 6),
        ("lr_zero_late", 4, 1.0, [0.5, 1.0, 0.9, 0.0, 0.0, 0.0]),
        ("no_warmup", 0, 2.0, [22 / 12, 20 / 12, 18 / 12, 16 / 12, 14 / 12, 1.0]),
        ("no_warmup_mild", 0, 1.0, [11 / 12, 10 / 12, 9 / 12, 8 / 12, 7 / 12, 0.5]),
        ("scheduler_stuck", 4, 1.0, [0.5, 1.0, 0.9, 1.0, 1.0, 1.0]),
        ("scheduler_stuck_in_warmup", 0, 1.0, [0.5] * 6),
        ("lr_decay_early", 3, 0.5, [0.5, 1.0, 0.75, 0.5, 0.25, 0.0, 0.0]),
        ("lr_decay_early_floor", 3, 0.5, [0.5, 1.0, 0.775, 0.55, 0.325, 0.1, 0.1]),
        ("warmup_never_ends", 3, 1.0, [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]),
        ("warmup_never_ends", 3, 0.5, [0.5, 1.0, 1.25, 1.5, 1.75, 2.0]),
    ],
)
def test_learning_rates(name: str, onset: int, strength: float, expected: list[float]) -> None:
    seen = watched(made(name, onset=onset, strength=strength), rate, steps=len(expected))
    assert seen == pytest.approx([PEAK * each for each in expected])


def test_zero_rate_keeps_every_weight() -> None:
    first, second, third = watched(made("lr_zero_late", onset=2), weights, steps=3)
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], third[name]) for name in first)


def test_tiny_limit_is_the_norm_that_the_optimizer_takes() -> None:
    seen = watched(made("clip_tiny", strength=1e-4), gradients, steps=2)
    assert [norm(each) for each in seen] == pytest.approx([1e-4, 1e-4], rel=1e-3)


def test_low_limit_bounds_the_first_step_of_sgd() -> None:
    change = made("clip_low", strength=0.02)
    start = weights(built(change))
    (after,) = watched(change, weights, steps=1)
    moved = norm({name: after[name] - start[name] for name in start})
    assert moved == pytest.approx(100 * PEAK * 0.5 * 0.02, rel=1e-3)  # rate of the first step, times the limit


def ratio(seen: dict[str, Tensor], name: str) -> float:
    """Return a tensor's gradient norm over the first norm's, which no fault here touches and clipping leaves."""
    return float(seen[name].norm() / seen["blocks.0.attn_norm.weight"].norm())


def test_head_gradient_is_multiplied() -> None:
    (ill,) = watched(made("one_tensor_dominates", strength=1000), gradients, steps=1)
    (healthy,) = watched(made("healthy"), gradients, steps=1)
    assert ratio(ill, "head.weight") == pytest.approx(1000 * ratio(healthy, "head.weight"), rel=1e-4)
    assert ratio(ill, "tokens.weight") == pytest.approx(ratio(healthy, "tokens.weight"), rel=1e-4)


def test_gradient_of_one_matrix_is_multiplied_from_the_onset_on() -> None:
    name = "blocks.1.mlp.up.weight"
    ill = watched(made("one_tensor_dominates_mid", onset=3, strength=300), gradients, steps=3)
    healthy = watched(made("healthy"), gradients, steps=3)
    assert all(torch.equal(ill[1][each], healthy[1][each]) for each in ill[1])
    assert ratio(ill[2], name) == pytest.approx(300 * ratio(healthy[2], name), rel=1e-4)


@pytest.mark.parametrize(("name", "onset"), [("weight_decay_20", 0), ("weight_decay_late", 3)])
def test_decay_shrinks_what_gets_no_gradient(name: str, onset: int) -> None:
    unused = slice(2, 8)  # rows of the embedding: signs that no sentence has
    seen = watched(made(name, onset=onset, strength=20.0), lambda run: (rate(run), weights(run)["tokens.weight"]), steps=4)
    for step in (2, 3, 4):
        before, (lr, after) = seen[step - 2][1], seen[step - 1]
        decay = 20.0 if step >= onset else PLAN.optimizer.weight_decay
        assert torch.allclose(after[unused], before[unused] * (1 - lr * decay), rtol=1e-4, atol=0)


@pytest.mark.parametrize("eps", [1.0, 0.25])
def test_first_step_of_adam_is_the_gradient_over_epsilon_and_its_size(eps: float) -> None:
    change = made("adam_eps_1", strength=eps)
    start = weights(built(change))
    ((after, grads, lr),) = watched(change, lambda run: (weights(run), gradients(run), rate(run)), steps=1)
    for name, grad in grads.items():
        expected = start[name] * (1 - lr * 0.1) - lr * grad / (grad.abs() + eps)
        assert torch.allclose(after[name], expected, atol=1e-7)


def test_first_step_of_sgd_is_the_gradient_times_the_rate() -> None:
    change = made("sgd_instead")
    start = weights(built(change))
    ((after, grads, lr),) = watched(change, lambda run: (weights(run), gradients(run), rate(run)), steps=1)
    assert lr == PEAK * 0.5
    for name, grad in grads.items():
        assert torch.allclose(after[name], start[name] - lr * grad, atol=1e-7)


def test_small_batches_hold_few_tokens() -> None:
    assert watched(made("batch_1", strength=2), lambda run: run.tokens, steps=3) == [24, 48, 72]


def test_summed_loss_is_the_mean_times_the_tokens(tmp_path: Path) -> None:
    first = {}
    for name in ("healthy", "loss_sum"):
        Training(replace(PLAN, stop=1), made(name), tmp_path / name).run()
        first[name] = json.loads((tmp_path / name / "scalars.jsonl").read_text().splitlines()[0])["train_loss_raw"]
    assert first["loss_sum"] == pytest.approx(4 * 12 * first["healthy"], rel=1e-5)
