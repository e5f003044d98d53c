"""The four derived numbers of a run: divergence step, tau, spike flags, and gradient over weight."""

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from ckaudit.contract.schema.numbers import to_word
from ckaudit.contract.schema.report import Derived, Finding, GradToWeight, Tau
from ckaudit.metrics import Metric
from ckaudit.metrics.flags import spike_flags
from ckaudit.metrics.gradients import grad_to_weight, gradient_norm
from ckaudit.metrics.loss import train_loss_at_evals, train_loss_raw, val_loss
from ckaudit.metrics.overfitting_onset import last_divergence_step
from ckaudit.metrics.slice_gap import latest_tau_trend, slice_loss, tau, tau_trend
from ckaudit.metrics.spikes import WINDOW
from ckaudit.metrics.words import element_type
from ckaudit.run.cancelled import cancelled
from ckaudit.run.run import Run

METRICS: tuple[Metric, ...] = (spike_flags, grad_to_weight, tau, tau_trend, train_loss_at_evals, val_loss)
"""What they are made of."""
BAND = (1e-4, 1e-1)
"""Where the ratio of gradient to weight is well (F16)."""
MIN_EVALS = 5
"""Evaluations below which nothing can be said to widen for good: the best, three after it, and one to compare with."""
MAX_FLAGS = 100
"""Flagged steps that a report lists."""

T = TypeVar("T")


def derived(run: Run, findings: Iterable[Finding]) -> Derived:
    """Return the four numbers; each that is missing is null with a reason."""
    reasons: dict[str, str] = {}

    def known(name: str, found: T | str) -> T | None:
        if isinstance(found, str):
            reasons[name] = found
            return None
        return found

    spikes = known("spike_flags", _spike_flags(run, findings))
    return Derived(
        divergence_step=known("divergence_step", _divergence_step(run)),
        tau=known("tau", _tau(run)),
        spike_flags=None if spikes is None else spikes[:MAX_FLAGS],
        spike_flags_count=None if spikes is None else len(spikes),
        grad_to_weight=known("grad_to_weight", _grad_to_weight(run)),
        reasons=reasons,
    )


def _divergence_step(run: Run) -> int | str:
    evals = val_loss(run)
    count = int(evals.finite[:, 0].sum()) if evals else 0
    if not count:
        return "no validation loss is recorded"
    if not train_loss_at_evals(run):
        return "no training loss is recorded beside the validation loss"
    if count < MIN_EVALS:
        return f"{count} evaluations; {MIN_EVALS} are needed"
    step = last_divergence_step(run)
    return "the validation loss does not part from the training loss" if step is None else step


def _tau(run: Run) -> Tau | str:
    easy, hard = run.easy_and_hard
    gap = tau(run)
    rows = np.flatnonzero(gap.finite[:, 0]) if gap else np.empty(0, np.int64)
    if not len(rows):
        missing = [name for name in (easy, hard) if not slice_loss(run, name)]
        named = f"no loss of the {'slices' if len(missing) > 1 else 'slice'} {' and '.join(missing)} is recorded"
        return named if missing else f"no step has a finite loss of both {easy} and {hard}"
    steps, values = gap.steps[rows].tolist(), gap.values[rows, 0].tolist()
    top = int(np.argmax(values))
    trend = latest_tau_trend(run)
    return Tau(
        slices=(easy, hard),
        first=values[0],
        first_step=steps[0],
        last=values[-1],
        last_step=steps[-1],
        peak=values[top],
        peak_step=steps[top],
        trend=None if trend is None else to_word(trend),
        points=len(rows),
    )


def _spike_flags(run: Run, findings: Iterable[Finding]) -> list[int] | str:
    """Return the flagged steps; before the window of F15 can fill, those of the findings on spikes."""
    flags = spike_flags(run)
    if flags:
        return [int(step) for step in flags.steps[(flags.values[:, 0] == 1) & flags.recorded[:, 0]]]
    if spikes := sorted(
        {finding.worst_step for finding in findings if finding.name == "loss_spike" and finding.worst_step is not None}
    ):
        return spikes
    loss = train_loss_raw(run)
    count = int(loss.finite[:, 0].sum()) if loss else 0
    return f"{count} finite losses; the window before the first flag takes {WINDOW}" if count else "no training loss is recorded"


def _grad_to_weight(run: Run) -> GradToWeight | str:
    """Return the outermost ratios; tensors whose gradient cancels by construction have none that means anything."""
    if not grad_to_weight(run):
        return "no checkpoint has gradient norms beside the statistics of the weights"
    silent = cancelled(gradient_norm(run), run.tensors, element_type(run))
    ratio = grad_to_weight(run).only(lambda name: name not in silent)
    known = np.flatnonzero(ratio.finite.any(axis=1))
    if not len(known):
        return "no ratio of gradient to weight is finite"
    row = int(known[-1])
    values = np.where(ratio.finite[row], ratio.values[row], np.nan)
    low, high = int(np.nanargmin(values)), int(np.nanargmax(values))
    return GradToWeight(
        min=float(values[low]),
        min_where=ratio.labels[low],
        max=float(values[high]),
        max_where=ratio.labels[high],
        step=int(ratio.steps[row]),
        tensors=int(np.isfinite(values).sum()),
        below=int((values < BAND[0]).sum()),
        above=int((values > BAND[1]).sum()),
    )
