"""The base of faults and controls: the points of a training at which a change can act."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ckaudit.lab.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


class Change:
    """One change to a healthy training. Each method is a point of the training, and changes nothing unless overridden.

    Attributes:
        onset: First step at which the change acts; 0: from the initial weights on.
        strength: Strength of the change, in the unit that its docstring states.
    """

    def __init__(self, onset: int = 0, strength: float = 1.0) -> None:
        self.onset = onset
        self.strength = strength

    def plan(self, plan: Plan) -> Plan:
        """Change the plan, before anything is built."""
        return plan

    def model(self, model: "nn.Module") -> None:
        """Change the model when it is built, before the optimizer gets it."""

    def trained(self, model: "nn.Module") -> "list[nn.Parameter]":
        """Return the parameters for the optimizer."""
        return list(model.parameters())

    def begin(self, training: "Training") -> None:
        """Change anything before a step; `training.step` is its number."""

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Change a batch from the loader; `training.step` is the step it is for."""
        return batch

    def rate(self, training: "Training", rate: float) -> float:
        """Change the learning rate of a step."""
        return rate

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Return the loss of a batch."""
        return training.task.loss(logits, batch)

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Compute the gradients of the scaled loss."""
        loss.backward()

    def zero(self, training: "Training") -> None:
        """Clear the gradients of the last step."""
        training.optimizer.zero_grad()

    def gradients(self, training: "Training") -> None:
        """Change the gradients, before the recorder reads them."""

    def clip(self, training: "Training") -> None:
        """Clip the gradients, after the recorder has read them."""
        training.clip()

    def update(self, training: "Training") -> None:
        """Apply the gradients."""
        training.update()

    def updated(self, training: "Training") -> None:
        """Change anything after an update, before the recorder sees the weights."""

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Return the values of an evaluation, by catalogue name."""
        return training.evaluate()

    def shown_loss(self, training: "Training", loss: "Tensor") -> "Tensor | float":
        """Change the loss that is passed to the recorder."""
        return loss

    def log(self, training: "Training", values: dict[str, Any]) -> dict[str, Any]:
        """Change the other values that are passed to the recorder at the end of a step."""
        return values

    def save(self, training: "Training") -> dict[str, Any]:
        """Return the state that is saved when the training stops."""
        return training.save()

    def restore(self, training: "Training", saved: dict[str, Any]) -> None:
        """Resume a training from its saved state."""
        training.restore(saved)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Change the facts that the training passes to the recorder."""
        return facts

    def finished(self, folder: Path) -> None:
        """Change the files when the run is over."""
