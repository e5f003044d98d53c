"""What a model is to do: predict the next token, or name a class."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ckaudit.lab.batch import IGNORED, Batch


class Task:
    """Predict the targets of a batch; a target is a token (B, T) or a class (B,)."""

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the logits, (B, T, V) or (B, V)."""
        out: Any = model(batch.inputs)
        return out if isinstance(out, Tensor) else out.logits

    def losses(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the negative log likelihood of each target in nats, shaped like the targets; zero where it is ignored."""
        flat = cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), reduction="none", ignore_index=IGNORED)
        return flat.view_as(batch.targets)

    def loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """Return the mean over the targets that count; 0 / 0 where none does."""
        return self.losses(logits, batch).sum() / (batch.targets != IGNORED).sum()

    def auxiliary(self, model: nn.Module) -> Tensor | float:
        """Return what modules of the model add to the loss of training after a forward pass, such as that of a router."""
        return sum(getattr(module, "auxiliary", 0.0) for module in model.modules())


class Evaluation:
    """What a model makes of the held-out batch, in pieces that fit in memory.

    Attributes:
        held_out: The batch.
    """

    def __init__(self, task: Task, held_out: Batch, *, rows: int = 64) -> None:
        self._task = task
        self.held_out = held_out
        self._pieces = [
            Batch(inputs=inputs, targets=targets)
            for inputs, targets in zip(held_out.inputs.split(rows), held_out.targets.split(rows), strict=True)
        ]

    @torch.no_grad()
    def values(self, model: nn.Module) -> dict[str, float]:
        """Return `val_loss` and, where there are slices, `slice_val_loss` of each, in nats; the model's mode is left alone."""
        losses = torch.cat([self._task.losses(self._task.logits(model, piece), piece) for piece in self._pieces])
        counted = self.held_out.targets != IGNORED
        masks = {f"slice_val_loss/{name}": mask & counted for name, mask in self.held_out.slices.items()}
        return {name: float(losses[mask].mean()) for name, mask in ({"val_loss": counted} | masks).items() if bool(mask.any())}
