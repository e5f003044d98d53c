"""Faults of numerics do to a training what they say, from their onset on and not before."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from tests.lab.tiny import TINY, Seen, same, started, train

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def healthy() -> Seen:
    return train(None)


@pytest.mark.parametrize(("fault", "strength"), [("nan_inject", 1.0), ("log_of_zero", 1e5)])
def test_a_loss_is_nan_at_the_onset(fault: str, strength: float, healthy: Seen) -> None:
    ill = train(fault, onset=3, strength=strength, stop=3)
    assert same(ill.weights[2], healthy.weights[2])
    assert math.isnan(ill.losses[3])
    assert all(bool(weight.isnan().any()) for weight in ill.weights[3].values())


def test_an_entropy_is_harmless_while_probabilities_are_not_zero(healthy: Seen) -> None:
    ill = train("log_of_zero", onset=1, strength=1, stop=1)
    assert ill.losses[1] == pytest.approx(healthy.losses[1] - 1e-3 * np.log(96), rel=1e-4)


def test_one_weight_is_changed(healthy: Seen) -> None:
    ill = train("bitflip", onset=3, strength=1e4, stop=3)
    assert same(ill.weights[2], healthy.weights[2])
    changed = {name: weight != healthy.weights[3][name] for name, weight in ill.weights[3].items()}
    assert {name: int(mask.sum()) for name, mask in changed.items() if mask.any()} == {"blocks.1.mlp.down.weight": 1}
    assert float(ill.weights[3]["blocks.1.mlp.down.weight"].max()) == 1e4


def test_one_element_of_a_gradient_is_changed(healthy: Seen) -> None:
    ill = train("bitflip_gradient", onset=3, strength=1e6, stop=4)
    for step, elements in ((2, 0), (3, 1)):
        gradient = ill.gradients[step]["blocks.1.mlp.up.weight"]
        assert int((gradient != healthy.gradients[step]["blocks.1.mlp.up.weight"]).sum()) == elements
    assert float(ill.gradients[4]["blocks.1.mlp.up.weight"].max()) < 1


def test_matrices_of_a_block_are_multiplied(healthy: Seen) -> None:
    ill = train("weights_x5_mid", onset=3, strength=5, stop=3)
    assert same(ill.weights[2], healthy.weights[2])
    for name, weight in ill.weights[3].items():
        factor = 5 if name.startswith("blocks.1.") and weight.dim() == 2 else 1
        torch.testing.assert_close(weight, healthy.weights[3][name] * factor)


def test_an_mlp_becomes_zero(healthy: Seen) -> None:
    ill = train("weights_zeroed_mid", onset=3, stop=5)
    assert same(ill.weights[2], healthy.weights[2])
    for name in ill.names("blocks.1.mlp."):
        assert not ill.weights[3][name].any()
        assert not ill.gradients[4][name].any()
        assert ill.gradients[5][name].any()  # the optimizer's momentum moves it out of zero


def test_small_gradients_underflow(healthy: Seen) -> None:
    ill = train("fp16_underflow", strength=1e-5, stop=1)
    for name, gradient in ill.gradients[1].items():
        exact = healthy.gradients[1][name].numpy()
        expected = (exact * np.float32(1e-5)).astype(np.float16).astype(np.float32) / np.float32(1e-5)
        np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-5)
    small = healthy.gradients[1]["blocks.1.attn.q.weight"].abs() < 2.9e-3
    assert small.all()
    assert not ill.gradients[1]["blocks.1.attn.q.weight"].any()


def test_a_loss_scale_overflows_and_updates_are_skipped() -> None:
    ill = train("loss_scale_storm", replace(TINY, steps=30), strength=1)
    skipped = [step for step in range(1, 31) if not ill.moved(step)]
    overflown = [step for step, found in ill.gradients.items() if not all(bool(each.isfinite().all()) for each in found.values())]
    assert skipped == overflown
    assert 5 < len(skipped) < 15
    assert {after - before for before, after in pairwise(skipped)} <= {1, 2, 3, 4}


def test_precision_changes_at_the_onset() -> None:
    kinds = []
    with started("autocast_lost", onset=3) as (training, _):
        training.model.head.register_forward_hook(lambda _module, _given, out: kinds.append(out.dtype))
        training.run()
    assert kinds == [torch.bfloat16] * 2 + [torch.float32] * 4


def test_weights_in_half_precision_lose_updates() -> None:
    ill = train("bf16_weights", strength=0.03)
    assert {weight.dtype for weight in ill.weights[6].values()} == {torch.bfloat16}
    assert ill.rates[1] == pytest.approx(0.03 * 3e-3)
    assert not any(name.endswith("norm.weight") for step in range(1, 7) for name in ill.moved(step))
    assert ill.moved(1) > set()
