"""Faults of initialization do what they say to the first weights, and to nothing else."""

import pytest
import torch

from ckaudit.lab.training import Training
from tests.lab.small import made
from tests.lab.watched import PLAN, built, gradients, watched, weights

HEALTHY = weights(built(made("healthy")))


@pytest.mark.parametrize("name", ["init_x100", "init_x5", "init_tiny"])
@pytest.mark.parametrize("strength", [7.0, 1e-3])
def test_matrices_are_scaled_and_vectors_are_not(name: str, strength: float) -> None:
    ill = weights(built(made(name, strength=strength)))
    for each, weight in HEALTHY.items():
        assert torch.equal(ill[each], weight * strength if weight.dim() == 2 else weight)


def test_only_the_head_is_scaled() -> None:
    ill = weights(built(made("head_init_x50", strength=50.0)))
    assert {name for name, weight in HEALTHY.items() if not torch.equal(ill[name], weight)} == {"head.weight"}
    assert torch.equal(ill["head.weight"], HEALTHY["head.weight"] * 50)


def test_constant_matrices_have_no_spread() -> None:
    ill = weights(built(made("init_const", strength=0.01)))
    assert {float(each) for weight in ill.values() if weight.dim() == 2 for each in weight.unique()} == {
        float(torch.tensor(0.01))
    }


def firing(training: Training) -> list[float]:
    """Return the share of each block's units that fire for some token of the held-out batch."""
    shares: list[float] = []
    blocks = training.model.blocks
    hooks = [
        block.mlp.act.register_forward_hook(lambda _, __, out: shares.append(float((out > 0).any(1).any(0).float().mean())))
        for block in blocks
    ]
    training.task.logits(training.model, training.corpus.held_out())
    for hook in hooks:
        hook.remove()
    return shares


def test_dead_units_never_fire_and_get_no_gradient() -> None:
    seen = watched(made("dead_relu", strength=10), lambda run: (firing(run), gradients(run)), steps=3)
    for shares, grads in seen:
        assert shares == [0.0, 0.0]
        silent = {name for name, grad in grads.items() if not grad.any()}
        assert silent == {
            f"blocks.{block}.mlp{part}" for block in (0, 1) for part in (".up.weight", ".up.bias", ".down.weight")
        } | {f"blocks.{block}.mlp_norm.weight" for block in (0, 1)}


def test_most_units_of_one_block_die_at_the_onset() -> None:
    first, *_, before, after, later = watched(made("dead_relu_late", onset=4, strength=0.75), firing, steps=5)
    assert min(*first, *before) > 0.6
    assert after[0] > 0.6
    assert after[1] <= 0.25
    assert later[1] <= 0.25


def test_swapped_activation_keeps_the_rest_of_the_plan() -> None:
    training = built(made("dead_relu", strength=10))
    assert (training.plan.optimizer, training.plan.schedule) == (PLAN.optimizer, PLAN.schedule)
    assert training.plan.model.activation == "relu"
