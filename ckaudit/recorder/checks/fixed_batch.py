"""A pinned batch: examples shown to the model at every checkpoint, and the same tokens at shifted positions."""

import math
from inspect import signature
from typing import Any, Literal

import torch
from msgspec import UNSET, Struct, field
from torch import Tensor, nn

from ckaudit.contract.schema.checkpoint import ProbeStats
from ckaudit.recorder.batch_facts import batch_hash, inputs_and_targets
from ckaudit.recorder.checks.side_effect_free import LossOf, OutputCapture, logits_of, no_side_effects, with_changed_batch
from ckaudit.recorder.stats.float32_rounding import shorten, shortest
from ckaudit.recorder.target_alignment import IGNORED

TOP = 10

POSITIONS = 64

AT_ONCE = 2**22  # probabilities held at a time: 16 MiB

ShiftMethod = Literal["position_ids", "prepended"]


class NextTokenStats(Struct, frozen=True, kw_only=True):
    """Statistics of the next-token distributions at some positions.

    Attributes:
        entropy: Mean over positions, in nats.
        top_mass: Mean probability of the likeliest tokens together, in %.
        log_probabilities: Log-probabilities at sampled positions, shape (P, V), on the device of the logits.
    """

    entropy: float
    top_mass: float
    log_probabilities: Tensor


class ProbeReading(Struct, frozen=True, kw_only=True):
    """Probes and scalars of one evaluation of a pinned batch.

    Attributes:
        probes: The batch, and its twin where it has one, by name.
        scalars: Values by catalogue name.
    """

    probes: dict[str, ProbeStats] = field(default_factory=dict)
    scalars: dict[str, float] = field(default_factory=dict)


class FixedBatch:
    """Evaluates a model on one batch repeatedly, without gradients, in evaluation mode and without side effects.

    Args:
        batch: Inputs and targets; copied.
        loss: Returns the loss of a model on a batch.
        shift: Positions by which the twin is shifted, 0 for no twin. The last `shift` positions of the batch are cut off to make
            room; batches that are not tokens (B, T) have no twin.
        held_out: Whether training never sees the batch; None: not known.
        hookable: Whether the model may be hooked for its logits; else the loss gets a wrapper that passes them on.
    """

    def __init__(self, batch: Any, loss: LossOf, *, shift: int, held_out: bool | None = None, hookable: bool = True) -> None:
        copied = with_changed_batch(batch, lambda part, _: part.detach().clone())
        self.shift = room_for(copied, shift)
        self.batch = shorten_batch(copied, self.shift) if self.shift else copied
        self.hash = batch_hash(self.batch)
        self._loss, self._held_out, self._hookable = loss, held_out, hookable
        self._before: Tensor | None = None

    def read(self, model: nn.Module, name: str) -> ProbeReading:
        """Return the model's statistics on the batch under `name`, and their distance from those of the reading before."""
        loss, seen = self._evaluate(model, self.batch)
        reading = ProbeReading(probes={name: self._stats(loss, seen)}, scalars={"fixed_probe_loss": shorten(loss)})
        if seen is not None:
            reading.scalars["logit_entropy_probe"] = shorten(seen.entropy)
            reading.scalars["topk_mass_probe"] = shorten(seen.top_mass)
            moved = None if self._before is None else divergence(seen.log_probabilities, self._before)
            if moved is not None:
                reading.scalars["output_kl_to_prev"] = shorten(moved)
            self._before = seen.log_probabilities
        if self.shift:
            other, way = shifted_twin(self.batch, self.shift, model)
            stats = self._stats(*self._evaluate(model, other))
            stats.shift, stats.shifted_by = self.shift, way
            reading.probes[f"{name}.shifted"] = stats
        return reading

    def _stats(self, loss: float, seen: NextTokenStats | None) -> ProbeStats:
        return ProbeStats(
            loss=shortest(loss),
            perplexity=shortest(math.exp(loss) if loss < 700 else math.inf if loss > 0 else math.nan),  # exp overflows a double
            entropy=UNSET if seen is None else shortest(seen.entropy),
            held_out=UNSET if self._held_out is None else self._held_out,
            hash=UNSET if self.hash is None else self.hash,
        )

    def _evaluate(self, model: nn.Module, batch: Any) -> tuple[float, NextTokenStats | None]:
        outputs: list[Any] = []
        watched: Any = model if self._hookable else OutputCapture(model, outputs.append)
        handle = model.register_forward_hook(lambda *seen: outputs.append(seen[-1])) if self._hookable else None
        try:
            with no_side_effects(model), torch.no_grad():
                loss = float(self._loss(watched, batch))
        finally:
            if handle is not None:
                handle.remove()
        logits = logits_of(outputs[0]) if outputs else None
        return loss, None if logits is None else next_token_stats(logits, scored_positions(logits, batch))


def scored_positions(logits: Tensor, batch: Any) -> Tensor | None:
    """Return which positions of the logits have a target that is not ignored; None if the targets do not show it."""
    targets = inputs_and_targets(batch)[1]
    if targets is None or targets.shape != logits.shape[:-1] or targets.is_floating_point():
        return None
    tensor: Tensor = targets != IGNORED
    return tensor


# Statistics of next-token distributions: entropy, mass of the likeliest tokens, and divergence between two distributions.
def next_token_stats(
    logits: Tensor, counted: Tensor | None = None, *, top: int = TOP, positions: int = POSITIONS
) -> NextTokenStats | None:
    r"""Return the statistics of the next-token distributions that logits give.

    $$H = -\tfrac1N \sum_n \sum_v p_{nv} \log p_{nv}, \qquad m = \tfrac{100}{N} \sum_n \sum_{v \in \mathrm{top}_k(n)} p_{nv}$$

    Args:
        logits: Shape (..., V).
        counted: Which positions count, shape (...); default: all.
        top: Number of likeliest tokens in the mass (catalogue M24 leaves k open; 10 is the field's usual choice).
        positions: Maximum number of positions whose log-probabilities are kept, evenly strided.

    Returns:
        Entropy, mass and log-probabilities; None if no position counts.
    """
    rows = logits.detach().reshape(-1, logits.shape[-1])
    places = torch.arange(len(rows)) if counted is None else counted.reshape(-1).nonzero()[:, 0]
    places = places.to(rows.device)
    if not rows.numel() or not len(places):
        return None
    entropy, mass = 0.0, 0.0
    # A copy of all logits of a large vocabulary might not fit into memory.
    for part in torch.split(places, max(1, AT_ONCE // rows.shape[1])):
        logs = rows[part].float().log_softmax(-1)
        shares = logs.exp()
        # A logit of minus infinity has probability 0, and 0 log 0 is 0.
        entropy -= float((shares * logs.where(shares > 0, 0.0)).sum(dtype=torch.float64))
        mass += float(shares.topk(min(top, rows.shape[1]), dim=-1).values.sum(dtype=torch.float64))
    log_probabilities = rows[places[:: -(-len(places) // positions)]].float().log_softmax(-1)
    return NextTokenStats(entropy=entropy / len(places), top_mass=100 * mass / len(places), log_probabilities=log_probabilities)


def divergence(now: Tensor, before: Tensor) -> float | None:
    r"""Return the KL divergence of the current distributions from earlier ones, mean over positions, in nats (M25).

    $$D = \tfrac1P \sum_n \sum_v p_{nv} (\log p_{nv} - \log q_{nv})$$

    Args:
        now: Log-probabilities $\log p$, shape (P, V).
        before: Log-probabilities $\log q$, shape (P, V).

    Returns:
        The divergence; infinite if a token of probability 0 became possible; None if the shapes differ.
    """
    if now.shape != before.shape:
        return None
    shares = now.double().exp()
    terms = shares * (now.double() - before.double())
    return float(terms.where(shares > 0, 0.0).sum()) / now.shape[0]


# The twin of a batch: the same tokens at other positions. It separates what a model knows by content from what it knows by
# position.
def room_for(batch: Any, shift: int) -> int:
    """Return the number of positions that a batch of tokens (B, T) can be shifted by: at most a quarter of T; 0 for others."""
    inputs = inputs_and_targets(batch)[0]
    if not isinstance(inputs, Tensor) or inputs.ndim != 2 or inputs.is_floating_point():
        return 0
    return min(shift, inputs.shape[1] // 4)


def shorten_batch(batch: Any, shift: int) -> Any:
    """Return the batch without its last `shift` positions, so that the twin is not longer than the model's context.

    In a mapping, the label of the first token is ignored: only the twin has a token before it.
    """
    length = _tokens(batch).shape[1] - shift

    def shorten(part: Tensor, place: str | int) -> Tensor:
        if not _follows(part, batch):
            return part
        part = part[:, :length].clone()
        if place == "labels":
            part[:, 0] = IGNORED
        return part

    return with_changed_batch(batch, shorten)


def shifted_twin(batch: Any, shift: int, model: nn.Module) -> tuple[Any, ShiftMethod]:
    """Return the same tokens `shift` positions later, and how that was done.

    If the model takes `position_ids` and the batch is a mapping, the mapping gets shifted ones. Otherwise `shift` copies of the
    first token, with ignored targets, are put before each sequence.
    """
    if hasattr(batch, "get") and "position_ids" in signature(model.forward).parameters:
        inputs = _tokens(batch)
        positions = batch.get("position_ids")
        places = torch.arange(inputs.shape[1], device=inputs.device).expand(inputs.shape) if positions is None else positions
        return dict(batch) | {"position_ids": places + shift}, "position_ids"
    return with_changed_batch(
        batch, lambda part, place: _prepended(part, place, shift) if _follows(part, batch) else part
    ), "prepended"


def _prepended(part: Tensor, place: str | int, shift: int) -> Tensor:
    before = part[:, :1].repeat_interleave(shift, dim=1)
    if place in (1, "labels"):
        before = torch.full_like(before, IGNORED)
    return torch.cat([before, part], dim=1)


def _tokens(batch: Any) -> Tensor:
    inputs = inputs_and_targets(batch)[0]
    assert isinstance(inputs, Tensor)
    return inputs


def _follows(part: Tensor, batch: Any) -> bool:
    """Return whether a tensor has one value for each token of the inputs."""
    return part.shape == _tokens(batch).shape
