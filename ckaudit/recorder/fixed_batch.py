"""A pinned batch: the same examples shown to the model at every checkpoint, and their twin at other positions."""

import math
from typing import Any

import torch
from msgspec import UNSET, Struct, field
from torch import Tensor, nn

from ckaudit.contract.model_sections import ProbeStats
from ckaudit.recorder.batch import IGNORED, batch_hash, pair
from ckaudit.recorder.float32_rounding import shorten, shortest
from ckaudit.recorder.losses import LossOf, Watched, changed, logits_of
from ckaudit.recorder.next_token_stats import NextTokenStats, divergence, outlook
from ckaudit.recorder.position_shift import cut, room_for, twin
from ckaudit.recorder.side_effect_free import undisturbed


class Reading(Struct, frozen=True, kw_only=True):
    """What the model said to a pinned batch once.

    Attributes:
        probes: The batch, and its twin where it has one, by name.
        scalars: Values by catalogue name.
    """

    probes: dict[str, ProbeStats] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)


class FixedBatch:
    """Shows one batch to a model again and again, without gradients, in evaluation mode, and leaves no trace in it.

    Args:
        batch: Inputs and targets; copied.
        loss: Returns the loss of a model on a batch.
        shift: Positions by which the twin is moved, 0 for none. The last `shift` positions of the batch are cut off to make
            room; batches that are not tokens (B, T) have no twin.
        held_out: Whether training never sees the batch; None: not known.
        hookable: Whether the model may be hooked for its logits; else the loss is given a stand-in that hands them over.
    """

    def __init__(self, batch: Any, loss: LossOf, *, shift: int, held_out: bool | None = None, hookable: bool = True) -> None:
        copied = changed(batch, lambda part, _: part.detach().clone())
        self.shift = room_for(copied, shift)
        self.batch = cut(copied, self.shift) if self.shift else copied
        self.hash = batch_hash(self.batch)
        self._loss, self._held_out, self._hookable = loss, held_out, hookable
        self._before: Tensor | None = None

    def read(self, model: nn.Module, name: str) -> Reading:
        """Return what the model says to the batch now, under `name`, and how far that is from what it said before."""
        loss, seen = self._look(model, self.batch)
        reading = Reading(probes={name: self._stats(loss, seen)}, scalars={"fixed_probe_loss": shorten(loss)})
        if seen is not None:
            reading.scalars["logit_entropy_probe"] = shorten(seen.entropy)
            reading.scalars["topk_mass_probe"] = shorten(seen.top_mass)
            moved = None if self._before is None else divergence(seen.kept, self._before)
            if moved is not None:
                reading.scalars["output_kl_to_prev"] = shorten(moved)
            self._before = seen.kept
        if self.shift:
            other, way = twin(self.batch, self.shift, model)
            stats = self._stats(*self._look(model, other))
            stats.shift, stats.shifted_by = self.shift, way
            reading.probes[f"{name}.shifted"] = stats
        return reading

    def _stats(self, loss: float, seen: NextTokenStats | None) -> ProbeStats:
        return ProbeStats(
            loss=shortest(loss),
            perplexity=shortest(math.exp(loss) if loss < 700 else math.inf if loss > 0 else math.nan),  # a double's end
            entropy=UNSET if seen is None else shortest(seen.entropy),
            held_out=UNSET if self._held_out is None else self._held_out,
            hash=UNSET if self.hash is None else self.hash,
        )

    def _look(self, model: nn.Module, batch: Any) -> tuple[float, NextTokenStats | None]:
        outputs: list[Any] = []
        watched: Any = model if self._hookable else Watched(model, outputs.append)
        handle = model.register_forward_hook(lambda *seen: outputs.append(seen[-1])) if self._hookable else None
        try:
            with undisturbed(model), torch.no_grad():
                loss = float(self._loss(watched, batch))
        finally:
            if handle is not None:
                handle.remove()
        logits = logits_of(outputs[0]) if outputs else None
        return loss, None if logits is None else outlook(logits, counted(logits, batch))


def counted(logits: Tensor, batch: Any) -> Tensor | None:
    """Return which positions of the logits have a target that is not ignored; None where targets do not tell."""
    targets = pair(batch)[1]
    if targets is None or targets.shape != logits.shape[:-1] or targets.is_floating_point():
        return None
    found: Tensor = targets != IGNORED
    return found
