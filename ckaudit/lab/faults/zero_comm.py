"""Gradients that are lost on their way."""

from random import Random
from typing import TYPE_CHECKING

from ckaudit.lab.change import Change
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="system",
    truth="gradients_lost_in_communication",
    symptoms=("zero_gradients", "dead_parameter"),
    dev=Amount(strength=0.02),
    test=Amount(onset=100, strength=0.015),
    detectable=150,
)
class ZeroComm(Change):
    """At each step from the onset on, each tensor's gradient is all zeros with probability `strength`.

    A checkpoint has a few tensors whose gradient is exactly zero, other ones each time, while the losses show nothing.
    """

    def gradients(self, training: "Training") -> None:
        """Lose some."""
        lost = Random(f"{training.plan.seed}/lost/{training.step}")
        for weight in training.model.parameters():
            if training.step >= self.onset and lost.random() < self.strength and weight.grad is not None:
                weight.grad.zero_()
