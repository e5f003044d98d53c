"""Faults of the model do what they say, from their onset on and not before."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ckaudit.lab.training import Training
from tests.lab.small import made
from tests.lab.watched import built, gradients, watched, weights


def outputs(training: Training, pattern: str) -> list[Tensor]:
    """Return what the modules whose names end with `pattern` give for the held-out batch, in order."""
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, __, out: seen.append(out.detach()))
        for name, module in training.model.named_modules()
        if name.endswith(pattern)
    ]
    training.task.logits(training.model, training.corpus.held_out())
    for hook in hooks:
        hook.remove()
    return seen


def streams(training: Training) -> list[Tensor]:
    """Return the input, the parts and the output of the first block."""
    block: Any = training.model.get_submodule("blocks.0")
    x = training.model.tokens(training.corpus.held_out().inputs)
    return [x, block.attn(block.attn_norm(x)), block(x)]


@pytest.mark.parametrize(
    ("name", "strength", "skip"), [("no_residual", 1.0, 0.0), ("weak_residual", 0.3, 0.3), ("healthy", 1.0, 1.0)]
)
def test_stream_goes_around_a_branch_weakened(name: str, strength: float, skip: float) -> None:
    training = built(made(name, strength=strength))
    block: Any = training.model.get_submodule("blocks.0")
    before, attended, after = streams(training)
    middle = skip * before + attended
    assert torch.allclose(after, skip * middle + block.mlp(block.mlp_norm(middle)), atol=1e-7)


def test_without_norms_there_is_none() -> None:
    training = built(made("no_norm"))
    assert {name for name in weights(training) if "norm" in name} == set()
    assert torch.equal(
        outputs(training, "blocks.0.attn_norm")[0],
        training.model.tokens(training.corpus.held_out().inputs) + training.model.positions.weight,
    )


def visible(logits: Tensor) -> Tensor:
    return logits[logits.isfinite()]


def test_scaled_attention_multiplies_the_first_logits() -> None:
    ill, healthy = (outputs(built(made(name, strength=50.0)), "0.attn.logits")[0] for name in ("attn_scale_x50", "healthy"))
    assert torch.allclose(visible(ill), 50 * visible(healthy), rtol=1e-4)


def test_attention_without_scale_is_a_plain_product_of_large_heads() -> None:
    training = built(made("attn_no_scale", strength=7))
    (q,), (k,), (logits,) = (outputs(training, f"0.attn.{each}") for each in ("q", "k", "logits"))
    assert logits.shape[1] == 1
    assert torch.allclose(
        visible(logits[:, 0]), visible((q @ k.transpose(1, 2)).masked_fill(~logits[:, 0].isfinite(), float("inf")))
    )


def test_query_and_key_weights_grow_from_the_onset_on() -> None:
    ill, healthy = (watched(made(name, onset=3, strength=1.5), weights, steps=3) for name in ("qk_growth", "healthy"))
    assert all(torch.equal(ill[1][name], healthy[1][name]) for name in healthy[1])
    for name, weight in healthy[2].items():
        grows = name.endswith(("attn.q.weight", "attn.k.weight"))
        assert torch.allclose(ill[2][name], weight * 1.5 if grows else weight)


def test_heavy_dropout_removes_its_share_in_training_alone() -> None:
    training = built(made("dropout_heavy", strength=0.9))
    dropped = torch.cat([each.flatten() for each in outputs(training, ".drop")])
    assert float((dropped == 0).float().mean()) == pytest.approx(0.9, abs=0.02)
    training.model.eval()
    kept = torch.cat([each.flatten() for each in outputs(training, ".drop")])
    assert float((kept == 0).float().mean()) < 0.01


def test_tiny_model_is_tiny() -> None:
    training = built(made("tiny_model", strength=4))
    assert {tuple(weight.shape) for weight in weights(training).values()} == {(96, 4), (12, 4), (4, 4), (4,)}


def test_without_attention_only_the_last_token_counts() -> None:
    training = built(made("unigram_plateau", strength=0.0))
    inputs = training.corpus.held_out().inputs[:1].repeat(2, 1)
    inputs[1, :-1] = inputs[1, :-1].flip(0)
    logits = training.model(inputs)
    assert torch.equal(logits[0, -1], logits[1, -1])
    assert not torch.equal(logits[0, 0], logits[1, 0])


def test_next_to_no_attention_still_gets_a_gradient() -> None:
    (grads,) = watched(made("unigram_plateau", strength=1e-3), gradients, steps=1)
    (healthy,) = watched(made("healthy"), gradients, steps=1)
    name = "blocks.0.attn.out.weight"
    assert 0 < float(grads[name].norm()) < 0.01 * float(healthy[name].norm())


def test_sigmoid_is_driven_to_its_ends() -> None:
    shares = []
    for strength in (1.0, 60.0):
        (first, _) = outputs(built(made("sigmoid_saturated", strength=strength)), "mlp.act")
        shares.append(float(((first < 0.05) | (first > 0.95)).float().mean()))
    assert shares[0] == 0.0
    assert shares[1] > 0.3
