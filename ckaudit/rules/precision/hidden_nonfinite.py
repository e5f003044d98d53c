"""NUM002: the log is clean where other numbers are not finite."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.nonfinite import nonfinite_activations, nonfinite_gradients, nonfinite_weights
from ckaudit.metrics.optimizer import skipped_updates
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Mask, Series, Steps
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of


@rule(
    "NUM002",
    severity="sev0",
    needs=[train_loss_raw],
    unit="nats/token",
    memory=2,
    wants=[grad_global_norm, nonfinite_gradients, nonfinite_weights, nonfinite_activations, skipped_updates, FACTS],
)
def hidden_nonfinite(
    loss: Series,
    norm: Series | None,
    gradients: Series | None,
    weights: Series | None,
    activations: Series | None,
    skipped: Series | None,
    facts: Manifest | None,
    *,
    min_points: int = 1,
    min_loss: float = 0.05,
) -> Iterator[Hit | Skip]:
    """The log is clean where other numbers are not finite.

    ## What it checks
    Steps whose loss is finite while other numbers show that it cannot be right, at `min_points` points in a row:

    - Outputs are not finite, or weights have not been finite since the checkpoint before, though the loss is: no such loss
      exists.
    - Gradients are not finite, and the loss reads exactly zero after one above `min_loss`, or exactly what it read at both points
      before: a logger put it there (the Hugging Face Trainer does so by default).
    ## Why it matters
    The curve shows a good step, and the number that should stop the run is gone.
    ## False alarms
    Some numbers that are not finite belong beside a finite loss, and are left out:

    - A loss is computed before the update that breaks the weights, and is finite at that step. A writer that makes a pass of its
      own after the update finds outputs that are not.
    - Rows of an embedding that no token of the batch reads break nothing: embeddings are left out.
    - Gradients that overflow under a loss scale belong to steps with a loss of their own: updates that were skipped for it are
      left out.
    """
    if all(series is None for series in (norm, gradients, weights, activations)):
        yield needs_one_of(grad_global_norm, nonfinite_gradients, nonfinite_weights, nonfinite_activations)
        return
    outputs = _steps_of([] if activations is None else [activations], counts=True)
    lost = (outputs - _newly_broken(weights)) | _broken_before(weights, table_of(facts))
    bad = _steps_of([] if gradients is None else [gradients], counts=True) | _steps_of([] if norm is None else [norm])
    if skipped is not None:
        bad -= {int(step) for step in skipped.steps[(skipped.values > 0).any(axis=1)]}
    values = loss.values[:, 0]
    same = np.diff(values, prepend=np.nan) == 0
    last = np.maximum.accumulate(np.where(values != 0, np.arange(len(values)), 0))
    fell_to_zero = (values == 0) & (values[last] > min_loss)
    stopped = fell_to_zero | (same & np.roll(same, 1))
    hidden = _among(loss.steps, lost) | (_among(loss.steps, bad) & stopped)
    for span in spans(loss, hidden[:, None] & loss.finite, min_points=min_points):
        yield Hit.over(
            span,
            "sev0",
            "the loss is logged as {value:.4g} at a step with values that are not finite: the log hides them",
            badness=-loss.values,
            value=loss.values,
        )


def _newly_broken(weights: Series | None) -> set[int]:
    """Return the checkpoints at which some weights are not finite and all were finite at the previous checkpoint, if any."""
    if weights is None or not len(weights.steps):
        return set()
    broken = np.asarray((weights.nonfinite | (np.nan_to_num(weights.values) > 0)).any(axis=1))
    return {int(step) for step in weights.steps[broken & ~np.concatenate([[False], broken[:-1]])]}


def _broken_before(weights: Series | None, tensors: TensorTable) -> set[int]:
    """Return the checkpoints at which weights that every batch uses are not finite, there and at the checkpoint before."""
    if weights is None:
        return set()
    used = weights.only(lambda name: tensors.kind(name) != "embedding")
    broken = used.nonfinite | (np.nan_to_num(used.values) > 0)
    return {int(step) for step in used.steps[1:][(broken[1:] & broken[:-1]).any(axis=1)]}


def _steps_of(serieses: list[Series], *, counts: bool = False) -> set[int]:
    """Return the steps at which a series is not finite or, with `counts`, counts elements that are not."""
    masks = [
        (seriese, seriese.nonfinite | (np.nan_to_num(seriese.values) > 0) if counts else seriese.nonfinite)
        for seriese in serieses
    ]
    return {int(step) for series, mask in masks for step in series.steps[mask.any(axis=1)]}


def _among(steps: Steps, wanted: set[int]) -> Mask:
    return np.isin(steps, np.array(sorted(wanted), np.int64))
