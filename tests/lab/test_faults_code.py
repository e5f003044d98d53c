"""Faults of the code do to a training what they say, from their onset on and not before."""

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from ckaudit.lab.plan import Data
from ckaudit.lab.task import IGNORED
from ckaudit.run.read import read_run
from tests.lab.tiny import TINY, Seen, same, started, train

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def healthy() -> Seen:
    return train(None)


def size(gradient: Tensor | None) -> float:
    assert gradient is not None
    return float(gradient.abs().max())


def test_gradients_add_up_from_the_onset_on(healthy: Seen) -> None:
    ill = train("no_zero_grad_late", onset=3, stop=3)
    assert same(ill.weights[2], healthy.weights[2])
    for name, gradient in ill.gradients[3].items():
        torch.testing.assert_close(gradient, healthy.gradients[3][name] + healthy.gradients[2][name])


def test_gradients_add_up_from_the_start(healthy: Seen) -> None:
    ill = train("no_zero_grad", stop=2)
    for name, gradient in ill.gradients[1].items():
        assert torch.equal(gradient, healthy.gradients[1][name])
        torch.testing.assert_close(ill.gradients[2][name], healthy.gradients[2][name] + gradient)


@pytest.mark.parametrize(("fault", "part"), [("frozen_layer", "blocks.1."), ("frozen_positions", "positions.")])
def test_a_frozen_part_has_no_gradient_and_stands_still(fault: str, part: str) -> None:
    ill = train(fault, stop=3)
    for step in (1, 2, 3):
        assert {name for name, gradient in ill.gradients[step].items() if gradient is None} == ill.names(part)
        assert ill.moved(step) == ill.names() - ill.names(part)


def test_attention_times_zero_has_gradients_of_zero() -> None:
    ill = train("zero_proj", stop=2)
    zero = {name for name, gradient in ill.gradients[2].items() if size(gradient) == 0}
    assert zero == ill.names("blocks.1.attn.") | ill.names("blocks.1.attn_norm.")


def test_an_mlp_dies_at_the_onset(healthy: Seen) -> None:
    ill = train("dead_mlp", onset=3, stop=4)
    assert same(ill.weights[2], healthy.weights[2])
    for step, dead in ((2, set()), (3, ill.names("blocks.1.mlp")), (4, ill.names("blocks.1.mlp"))):
        assert {name for name, gradient in ill.gradients[step].items() if size(gradient) == 0} == dead


@pytest.mark.parametrize("block", [1, 2])
def test_a_cut_leaves_everything_before_it_without_a_gradient(block: int, healthy: Seen) -> None:
    ill = train("detach_block", strength=block, stop=2)
    before = ill.names("tokens") | ill.names("positions") | {name for at in range(block) for name in ill.names(f"blocks.{at}.")}
    assert ill.losses[1] == healthy.losses[1]
    assert {name for name, gradient in ill.gradients[1].items() if gradient is None} == before
    assert ill.moved(1) == ill.names() - before


def test_a_block_missing_in_the_optimizer_has_gradients_and_stands_still() -> None:
    ill = train("missing_in_optimizer", stop=2)
    assert ill.moved(2) == ill.names() - ill.names("blocks.2.")
    assert all(size(ill.gradients[2][name]) > 0 for name in ill.names("blocks.2."))


def test_an_optimizer_of_copies_moves_nothing(healthy: Seen) -> None:
    ill = train("stale_parameters", stop=3)
    assert ill.moved(1) | ill.moved(2) | ill.moved(3) == set()
    assert size(ill.gradients[3]["head.weight"]) > 2 * size(healthy.gradients[1]["head.weight"])


def test_updates_stop_at_the_onset(healthy: Seen) -> None:
    ill = train("skip_updates", onset=3, stop=5)
    assert same(ill.weights[2], healthy.weights[2])
    assert ill.moved(2) == ill.names()
    assert ill.moved(3) | ill.moved(4) | ill.moved(5) == set()
    assert size(ill.gradients[5]["head.weight"]) > 0


def test_one_update_in_three_is_lost() -> None:
    ill = train("skip_updates_sometimes", onset=2, strength=3)
    assert [step for step in range(1, 7) if not ill.moved(step)] == [2, 5]


@pytest.mark.parametrize(
    ("fault", "strength", "first"),
    [(None, 1, 9), ("broken_mask", 1, 0), ("mask_off_by_one", 1, 9 - 3), ("mask_leak_one_block", 2, 9 - 2)],
)
@pytest.mark.parametrize("fused", [False, True])
def test_how_far_ahead_a_model_sees(fault: str | None, strength: float, first: int, *, fused: bool) -> None:
    plan = replace(TINY, model=replace(TINY.model, fused=fused))
    with started(fault, plan, strength=strength) as (training, _), torch.no_grad():
        codes = training.corpus.batch(1).inputs[:1]
        other = codes.clone()
        other[0, 9] += 1
        differs = (training.model(codes) != training.model(other)).any(-1)[0]
    assert int(differs.nonzero()[0]) == first


@pytest.mark.parametrize(("fault", "leaking"), [(None, []), ("mask_leak_one_block", ["layer.1"])])
def test_attention_that_is_fused_is_recorded(fault: str | None, leaking: list[str]) -> None:
    plan = replace(TINY, model=replace(TINY.model, fused=True), steps=10)
    with started(fault, plan, strength=3) as (training, _):
        training.run()
        mass = read_run(training.folder).series("attention", "upper_triangle_mass_per_head")
    assert mass.labels == tuple(f"layer.{layer}/head.{head}" for layer in range(3) for head in range(2))
    over = {label.partition("/")[0] for label, value in zip(mass.labels, mass.values[-1], strict=True) if value > 0}
    assert sorted(over) == leaking


def test_targets_are_shuffled_apart_from_inputs() -> None:
    ill = train("labels_shuffled", stop=2)
    for step, batch in ill.batches.items():
        clean = ill.clean[step]
        assert torch.equal(batch.inputs, clean.inputs)
        assert torch.equal(batch.targets.flatten().sort().values, clean.targets.flatten().sort().values)
        assert (batch.targets == clean.targets).float().mean() < 0.3


def test_targets_are_shifted_by_two() -> None:
    batch = train("targets_shifted_by_two", stop=1).batches[1]
    assert torch.equal(batch.targets[:, :-2], batch.inputs[:, 2:])
    assert (batch.targets[:, -1] == IGNORED).all()


def test_targets_are_the_inputs() -> None:
    batch = train("no_shift", stop=1).batches[1]
    assert torch.equal(batch.targets, batch.inputs)


def test_softmax_is_applied_twice() -> None:
    with started("double_softmax") as (training, seen):
        batch = training.corpus.batch(1)
        logits = training.model(batch.inputs).detach().double().numpy()
        training.plan = replace(training.plan, stop=1)
        training.run()
    for _ in range(2):
        logits = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    picked = np.take_along_axis(logits, batch.targets.numpy()[..., None], -1)
    assert seen.losses[1] == pytest.approx(-np.log(picked).mean(), rel=1e-6)


def test_the_loss_has_the_wrong_sign(healthy: Seen) -> None:
    ill = train("flipped_sign", stop=2)
    assert ill.losses[1] == -healthy.losses[1]
    torch.testing.assert_close(ill.gradients[1]["head.weight"], -healthy.gradients[1]["head.weight"])
    assert ill.losses[2] < ill.losses[1]


@pytest.mark.parametrize(("fault", "noisy"), [("eval_with_dropout", True), (None, False)])
def test_evaluations_with_dropout_differ(fault: str | None, *, noisy: bool) -> None:
    with started(fault, replace(TINY, data=Data(batch_size=4, length=16)), strength=0.2) as (training, _):
        values = [training.change.evaluate(training)["val_loss"] for _ in range(2)]
        assert (values[0] != values[1]) is noisy


def test_a_tie_is_lost_at_the_onset() -> None:
    ill = train("tying_lost", onset=3, stop=4)
    tied = [torch.equal(ill.weights[step]["head.weight"], ill.weights[step]["tokens.weight"]) for step in range(5)]
    assert tied == [True, True, True, False, False]
    whole = train(None, replace(TINY, model=replace(TINY.model, tied=True)), stop=3)
    assert ill.losses[3] == whole.losses[3]
