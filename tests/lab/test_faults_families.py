"""Faults of models other than the plain transformer do what they say, from their onset on and not before."""

import pytest
import torch
from torch import Tensor, nn

from ckaudit.lab.models.language_models import Switch
from ckaudit.lab.plan import Cnn, Data, Gpt, Mlp
from ckaudit.lab.training import Training
from tests.lab.small import made
from tests.lab.watched import built, gradients, watched, weights

MOE = Gpt(width=16, depth=1, heads=2, hidden=24, experts=4)
POINTS, SHAPES = Data(corpus="points", batch_size=8, held_rows=8), Data(corpus="shapes", batch_size=8, held_rows=8)


def outputs(training: Training, kind: type[nn.Module], *, inside: str = "") -> list[Tensor]:
    """Return what the modules of a kind give for the held-out batch, in order."""
    seen: list[Tensor] = []
    hooks = [
        module.register_forward_hook(lambda _, __, out: seen.append(out.detach()))
        for name, module in training.model.named_modules()
        if isinstance(module, kind) and inside in name
    ]
    training.task.logits(training.model, training.corpus.held_out())
    for hook in hooks:
        hook.remove()
    return seen


def switch(training: Training) -> Switch:
    return next(module for module in training.model.modules() if isinstance(module, Switch))


def test_router_likes_one_expert_by_so_much() -> None:
    ill, healthy = (
        outputs(built(made(name, strength=8), model=MOE), nn.Linear, inside="router")[0]
        for name in ("router_collapse", "healthy")
    )
    assert torch.allclose(ill - healthy, torch.tensor([8.0, 0.0, 0.0, 0.0]), atol=1e-5)


def test_all_tokens_then_want_that_expert_and_nothing_drives_them_away() -> None:
    training = built(made("router_collapse", strength=8), model=MOE)
    (logits,) = outputs(training, nn.Linear, inside="router")
    assert not logits.argmax(-1).any()
    assert float(torch.as_tensor(switch(training).auxiliary).detach()) == 0.0


def test_balance_turns_at_the_onset() -> None:
    seen = watched(made("router_collapse_slow", onset=3, strength=0.1), lambda run: switch(run).balance, steps=4, model=MOE)
    assert seen == [0.01, 0.01, -0.1, -0.1]


def test_turned_balance_gathers_the_tokens() -> None:
    def share(training: Training) -> float:
        (logits,) = outputs(training, nn.Linear, inside="router")
        return float(logits.argmax(-1).flatten().bincount(minlength=4).max()) / logits[..., 0].numel()

    onset = watched(made("router_collapse_slow", onset=1, strength=1.0), share, steps=12, model=MOE)
    assert onset[-1] > max(0.6, onset[0])


@pytest.mark.parametrize(
    ("name", "strength", "room"), [("expert_capacity", 0.5, 2), ("expert_capacity", 0.6, 2), ("healthy", 1.0, 4)]
)
def test_room_of_an_expert(name: str, strength: float, room: int) -> None:
    training = built(made(name, strength=strength), model=MOE)
    training.task.logits(training.model, training.corpus.held_out())
    assert switch(training).expert_capacity == room  # of 12 tokens among 4 experts: 1.5, 1.8, 3.75, rounded up


def test_gradient_dies_in_a_stack_of_sigmoids() -> None:
    (grads,) = watched(made("sigmoid_stack", strength=8), gradients, steps=1, model=Mlp(hidden=16, depth=2), data=POINTS)
    norms = [float(grads[f"layers.{index}.linear.weight"].norm()) for index in range(8)]
    assert "layers.8.linear.weight" not in grads
    assert norms[0] < 1e-2 * norms[-1]


def test_sigmoids_stand_where_relus_were() -> None:
    training = built(made("sigmoid_stack", strength=3), model=Mlp(hidden=16, depth=2), data=POINTS)
    assert len(outputs(training, nn.Sigmoid)) == 3
    assert outputs(training, nn.ReLU) == []


def test_most_channels_never_fire_and_get_no_gradient() -> None:
    change, model = made("dead_relu_cnn", strength=0.75), Cnn(channels=4, depth=2)
    fired = outputs(built(change, model=model, data=SHAPES), nn.ReLU)[-1].amax((0, 2, 3))  # (8,)
    assert (fired > 0).tolist() == [False] * 6 + [True] * 2
    (grads,) = watched(change, gradients, steps=1, model=model, data=SHAPES)
    assert [bool(each.any()) for each in grads["layers.1.conv.weight"]] == [False] * 6 + [True] * 2


def test_only_the_biases_of_the_last_batch_norm_are_other() -> None:
    ill, healthy = (
        weights(built(made(name, strength=0.75), model=Cnn(channels=4, depth=2), data=SHAPES))
        for name in ("dead_relu_cnn", "healthy")
    )
    assert {name for name, weight in healthy.items() if not torch.equal(ill[name], weight)} == {"layers.1.norm.bias"}
