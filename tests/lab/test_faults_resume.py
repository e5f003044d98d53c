"""Faults of a resume do to a training what they say, after a real stop and start."""

import pytest
import torch

from tests.lab.tiny import Seen, same, train

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def healthy() -> Seen:
    return train(None, resume_at=3)


def test_a_clean_resume_changes_nothing(healthy: Seen) -> None:
    assert same(train(None).weights[6], healthy.weights[6])


@pytest.mark.parametrize(
    ("fault", "strength"),
    [
        *[("lr_resume_jump", 10), ("optimizer_reset", 1), ("resume_data_restart", 1), ("resume_wrong_weights", 1)],
        *[("resume_old_weights", 2), ("tying_lost", 1)],
    ],
)
def test_nothing_happens_before_the_resume(fault: str, strength: float, healthy: Seen) -> None:
    ill = train(fault, onset=4, strength=strength, stop=4)
    assert fault == "tying_lost" or same(ill.weights[3], healthy.weights[3])
    assert not same(ill.weights[4], healthy.weights[4])


def test_the_learning_rate_is_higher_after_the_resume(healthy: Seen) -> None:
    ill = train("lr_resume_jump", onset=4, strength=10, stop=5)
    assert [ill.rates[step] / healthy.rates[step] for step in range(1, 6)] == pytest.approx([1, 1, 1, 10, 10])


def test_the_optimizer_starts_anew(healthy: Seen) -> None:
    ill = train("optimizer_reset", onset=4, stop=4)
    gradient, rate = ill.gradients[4]["head.weight"], ill.rates[4]
    assert torch.equal(gradient, healthy.gradients[4]["head.weight"])
    moved = ill.weights[4]["head.weight"] - ill.weights[3]["head.weight"]
    large = gradient.abs() > 1e-4
    torch.testing.assert_close(moved[large], -rate * gradient.sign()[large], rtol=1e-2, atol=0)  # Adam's first step


def test_the_data_starts_anew() -> None:
    ill = train("resume_data_restart", onset=4)
    for step, batch in ill.batches.items():
        assert torch.equal(batch.inputs, ill.clean[step if step < 4 else step - 3].inputs)


def test_a_block_is_not_restored() -> None:
    ill = train("resume_wrong_weights", onset=4, strength=2, stop=4)
    far = 1.5 * ill.rates[4]  # the optimizer moves a weight by the learning rate at most
    jumped = {name for name in ill.names() if (ill.weights[4][name] - ill.weights[3][name]).abs().max() > far}
    assert jumped == ill.names("blocks.2.")


def test_old_weights_are_restored() -> None:
    ill = train("resume_old_weights", onset=4, strength=2, stop=4)
    tiny = train("resume_old_weights", onset=4, strength=2, stop=4, optimizer=_frozen())
    assert same(tiny.weights[4], tiny.weights[1])
    assert not same(ill.weights[4], ill.weights[3])


def _frozen():
    from ckaudit.lab.plan import Optimizer

    return Optimizer(kind="sgd", peak=1e-3, betas=(0.0, 0.0), weight_decay=0.0, clip=0.0)
