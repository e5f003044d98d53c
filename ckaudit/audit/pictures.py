"""The data of a report's pictures, and the state of the run at the step judged."""

from itertools import pairwise

import numpy as np

from ckaudit.contract.numbers import Number, to_word
from ckaudit.contract.report import Chart
from ckaudit.metrics.attention import normalized_attention_entropy
from ckaudit.metrics.gradients import block_gradient_norm, grad_global_norm
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.metric import Metric
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.run.run import Run
from ckaudit.run.series import Floats

STATE = (train_loss_raw, val_loss, learning_rate, grad_global_norm, update_to_weight_global, normalized_attention_entropy)
DRAWN = (train_loss_raw, block_gradient_norm)


def state(run: Run) -> dict[str, Number]:
    """Return the last recorded value of the main series; of many heads, the lowest entropy."""
    found = {}
    for metric in STATE:
        if last := _last(metric, run):
            found[metric.name] = to_word(float(np.nanmin(last[0])) if np.isfinite(last[0]).any() else float("nan"))
    return found


def _last(metric: Metric, run: Run) -> tuple[Floats, int] | None:
    series = metric(run)
    if not series:
        return None
    rows = series.recorded_rows()
    return rows.values[-1][rows.recorded[-1]], int(rows.steps[-1])


def charts(run: Run, *, points: int = 120) -> list[Chart]:
    """Return the loss curve and the last gradient waterfall.

    Args:
        run: The run, cut at the step judged.
        points: Values of the loss curve; each keeps the extreme of its stretch, so that no spike is lost.
    """
    return [chart for chart in (_loss(run, points), _waterfall(run)) if chart]


def _loss(run: Run, points: int) -> Chart | None:
    series = train_loss_raw(run)
    if series.points < 2:
        return None
    rows = series.recorded_rows()
    chosen = shape_preserving(rows.values[:, 0], points)
    return Chart(
        name="loss", title="Is the loss going down?", unit=train_loss_raw.unit,
        labels=[str(step) for step in rows.steps[chosen]], values=[to_word(value) for value in rows.values[chosen, 0].tolist()],
    )  # fmt: skip


def shape_preserving(values: Floats, points: int) -> np.ndarray:
    """Return at most `points` rows (two at least) of values (N,): of each stretch the one that stands out, and the last."""
    if len(values) <= points:
        return np.arange(len(values))
    edges = np.linspace(0, len(values) - 1, points).astype(int)
    outermost = _farthest(values, values)
    chosen = [_standing_out(values, start, end, outermost) for start, end in pairwise(edges.tolist())]
    return np.array([*chosen, len(values) - 1])


def _standing_out(values: Floats, start: int, end: int, outermost: int) -> int:
    """Return the row in [start, end) that is not finite, is the outermost of all, or farthest from the median around it."""
    part = values[start:end]
    broken = np.flatnonzero(~np.isfinite(part))
    if len(broken):
        return start + int(broken[0])
    if start <= outermost < end:
        return outermost
    # A stretch of two values has no middle of its own.
    return start + _farthest(part, values[max(0, 2 * start - end) : 2 * end - start])


def _farthest(part: Floats, around: Floats) -> int:
    """Return the row of the finite value in `part` that is farthest from the median of those around."""
    finite = around[np.isfinite(around)]
    distance = np.abs(part - (np.median(finite) if len(finite) else 0.0))
    return int(np.argmax(np.where(np.isfinite(distance), distance, -1.0)))


def _waterfall(run: Run) -> Chart | None:
    series = block_gradient_norm(run)
    if len(series.labels) < 2 or not series:
        return None
    rows = series.recorded_rows()
    cells = zip(rows.values[-1].tolist(), rows.recorded[-1].tolist(), strict=True)
    return Chart(
        name="gradient_waterfall",
        title=f"Does the gradient reach every block? (step {int(rows.steps[-1])})",
        unit=block_gradient_norm.unit,
        labels=list(rows.labels),
        values=[to_word(value) if known else None for value, known in cells],
    )
