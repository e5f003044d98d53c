"""The loss of a model on a batch that it is shown outside the training."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ckaudit.recorder.data.batch_stats import pair

LossOf = Callable[[nn.Module, Any], Tensor]


class OutputCapture:
    """Stands for a model that cannot be hooked, and hands over what it puts out.

    Args:
        model: The model.
        see: Called with each output.
    """

    def __init__(self, model: nn.Module, see: Callable[[Any], None]) -> None:
        self._model, self._see = model, see

    def __call__(self, *values: Any, **named: Any) -> Any:
        """Run the model."""
        found = self._model(*values, **named)
        self._see(found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def own_loss(model: nn.Module, batch: Any) -> Tensor:
    """Return the loss that a model puts out itself, or the cross entropy of its logits.

    Args:
        model: Takes the keywords of a mapping and puts out its `loss`; or takes inputs and puts out logits (..., V).
        batch: A mapping, or a pair of inputs and targets (...).

    Raises:
        TypeError: If neither gives a loss.
    """
    if hasattr(batch, "get"):
        output = model(**batch)
        loss: Tensor | None = output.get("loss") if hasattr(output, "get") else getattr(output, "loss", None)
        if loss is None:
            raise TypeError(f"{type(model).__name__} puts out no loss: give the function that computes it")
        return loss
    inputs, targets = pair(batch)
    if targets is None:
        raise TypeError("a batch without targets has no loss: give the function that computes it")
    logits: Tensor = model(inputs)
    return nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1))


def changed(batch: Any, change: Callable[[Tensor, str | int], Tensor]) -> Any:
    """Return a batch of the same form with every tensor replaced by `change(tensor, name or place)`."""
    if isinstance(batch, Tensor):
        return change(batch, 0)
    if isinstance(batch, tuple | list):
        return tuple(change(part, place) if isinstance(part, Tensor) else part for place, part in enumerate(batch))
    if hasattr(batch, "get"):
        return {name: change(part, name) if isinstance(part, Tensor) else part for name, part in batch.items()}
    return batch


def logits_of(output: Any) -> Tensor | None:
    """Return the logits among what a model puts out, shape (..., V); None where there are none."""
    if hasattr(output, "get"):
        output = output.get("logits")
    parts = output if isinstance(output, tuple | list) else (output,)
    return next((part for part in parts if isinstance(part, Tensor) and part.is_floating_point() and part.ndim >= 2), None)
