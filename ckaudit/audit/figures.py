"""Figures of a report: the state of the run, four derived numbers, and the data of its charts."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.numbers import Number, encode_float
from ckaudit.contract.schema.report import Chart, Derived, Finding, GradToWeight, Point, Tau
from ckaudit.metrics.attention import normalized_attention_entropy
from ckaudit.metrics.evaluation import last_divergence_step
from ckaudit.metrics.gradients import block_gradient_norm, grad_global_norm, grad_to_weight, gradient_norm
from ckaudit.metrics.loss import train_loss_at_evals, train_loss_raw, val_loss
from ckaudit.metrics.metric import Metric
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.slice_gap import latest_tau_trend, slice_loss, tau, tau_trend
from ckaudit.metrics.spikes import WINDOW, loss_excess, spike_flags
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.metrics.words import element_type
from ckaudit.rules import rules
from ckaudit.run.blocks import by_blocks
from ckaudit.run.cancelled_gradients import cancelled
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, root_sum_square

STATE = (train_loss_raw, val_loss, learning_rate, grad_global_norm, update_to_weight_global, normalized_attention_entropy)

DRAWN = (train_loss_raw, block_gradient_norm, gradient_norm)

SHORT_KINDS = {"attention": "attn"}

OF_LOSS = (train_loss_raw, loss_excess)

MAX_FINDINGS = 10  # findings to try: if none of the most severe can be drawn, the others are no substitute

MIN_POINTS = 3  # fewer points make no chart

MIN_ROWS_AROUND = 10  # smallest number of rows before and after


def state(run: Run) -> dict[str, Number]:
    """Return the last recorded value of the main series; for several heads the lowest entropy."""
    values = {}
    for metric in STATE:
        if last := _last(metric, run):
            values[metric.name] = encode_float(float(np.nanmin(last[0])) if np.isfinite(last[0]).any() else float("nan"))
    return values


def _last(metric: Metric, run: Run) -> tuple[Floats, int] | None:
    series = metric(run)
    if not series:
        return None
    rows = series.recorded_rows()
    return rows.values[-1][rows.recorded[-1]], int(rows.steps[-1])


def charts(run: Run, *, points: int = 120) -> list[Chart]:
    """Return the loss curve and the last gradient waterfall.

    Args:
        run: The run, cut at the judged step.
        points: Number of points of the loss curve; each keeps the extreme of its stretch, so that no spike is lost. Statistics
            use all values.
    """
    return [chart for chart in (_loss(run, points), _waterfall(run)) if chart]


def _loss(run: Run, points: int) -> Chart | None:
    series = train_loss_raw(run)
    if series.points < 2:
        return None
    unit = run.shown_unit(train_loss_raw.unit)
    return chart_of(series.recorded_rows(), name="loss", title="Is the loss going down?", points=points, unit=unit)


def chart_of(rows: Series, *, name: str, title: str, points: int, unit: str, finding: int | None = None) -> Chart:
    """Return a series of one place as a curve of at most `points` points; its statistics use all points."""
    values = rows.values[:, 0]
    chosen = shape_preserving(values, points)
    finite = np.flatnonzero(np.isfinite(values))
    ends = [Point(label=str(rows.steps[row]), value=float(values[row])) for row in (*_extremes(values), *finite[-1:])]
    least, greatest, last = ends or (None, None, None)
    return Chart(
        name=name,
        title=title,
        unit=unit,
        labels=[str(step) for step in rows.steps[chosen].tolist()],
        values=[encode_float(value) for value in values[chosen].tolist()],
        least=least,
        greatest=greatest,
        last=last,
        finding=finding,
    )


def shape_preserving(values: Floats, points: int) -> np.ndarray:
    """Return at most `points` rows (five at least) of values (N,) in order.

    They include the lowest and the highest finite value, the last one, and the one of each stretch that stands out.
    """
    if len(values) <= points:
        return np.arange(len(values))
    always = {*_extremes(values), len(values) - 1}
    outermost = _farthest(values, values)
    # If an extreme shares a stretch with another or with a NaN, both are kept, so there are fewer stretches.
    for edges in (points, points - 1, points - 2):
        ends = np.linspace(0, len(values) - 1, edges).astype(int).tolist()
        chosen = always | {_standing_out(values, start, end, outermost) for start, end in pairwise(ends)}
        if len(chosen) <= points:
            break
    return np.array(sorted(chosen))


def _extremes(values: Floats) -> list[int]:
    """Return the rows of the lowest and the highest finite value, the first of equal ones; empty if no value is finite."""
    finite = np.isfinite(values)
    if not finite.any():
        return []
    if finite.all():
        return [int(np.argmin(values)), int(np.argmax(values))]
    return [int(np.argmin(np.where(finite, values, np.inf))), int(np.argmax(np.where(finite, values, -np.inf)))]


def _standing_out(values: Floats, start: int, end: int, outermost: int) -> int:
    """Return the row in [start, end) that is not finite, is the outermost of all, or is farthest from the median around it."""
    part = values[start:end]
    broken = np.flatnonzero(~np.isfinite(part))
    if len(broken):
        return start + int(broken[0])
    if start <= outermost < end:
        return outermost
    # A stretch of two values has no median of its own.
    return start + _farthest(part, values[max(0, 2 * start - end) : 2 * end - start])


def _farthest(part: Floats, around: Floats, *, enough: int = 2_000) -> int:
    """Return the row of the finite value in `part` that is farthest from the median of the values around it.

    Args:
        part: Shape (N,).
        around: Shape (M,).
        enough: With more values the median uses every second, third and so on, which makes no visible difference.
    """
    around = around[:: max(1, len(around) // enough)]
    finite = around[np.isfinite(around)]
    middle = median(finite) if len(finite) else 0.0

    def distance_from_it(block: Floats) -> Floats:
        distance = np.abs(block - middle)
        return np.where(np.isfinite(distance), distance, -1.0)

    return int(np.argmax(by_blocks(distance_from_it, part)))


def _waterfall(run: Run) -> Chart | None:
    series = block_gradient_norm(run)
    if len(series.labels) < 2 or not series:
        return None
    rows = series.recorded_rows()
    cells = zip(rows.values[-1].tolist(), rows.recorded[-1].tolist(), strict=True)
    dead = _dead_branches(run, int(rows.steps[-1]))
    return Chart(
        name="gradient_waterfall",
        title=f"Does the gradient reach every block? (step {int(rows.steps[-1])})",
        unit=block_gradient_norm.unit,
        labels=list(rows.labels),
        values=[encode_float(value) if known else None for value, known in cells],
        remarks=[dead.get(block, "") for block in rows.labels] if dead else [],
    )


def _dead_branches(run: Run, step: int, *, min_share: float = 1e-6) -> dict[str, str]:
    """Return the branch of each block that has almost no gradient at a step, such as "attn: 0", by block.

    Args:
        run: The run.
        step: The step.
        min_share: Share of the block's largest branch below which a branch is dead.
    """
    norm = gradient_norm(run).until(step)
    branches = norm.grouped([run.tensors.branch(name) for name in norm.labels], root_sum_square)
    if not branches or branches.steps[-1] != step:
        return {}
    norms: dict[str, dict[str, float]] = {}
    for label, value, known in zip(branches.labels, branches.values[-1].tolist(), branches.finite[-1].tolist(), strict=True):
        block, _, kind = label.partition("/")
        if known:
            norms.setdefault(block, {})[SHORT_KINDS.get(kind, kind)] = value
    dead = {
        block: [
            f"{kind}: {value:.2g}" for kind, value in norms_of_block.items() if value < min_share * max(norms_of_block.values())
        ]
        for block, norms_of_block in norms.items()
    }
    return {block: ", ".join(remarks) for block, remarks in dead.items() if remarks}


# The metric of a finding around its steps: one chart for each of the most severe findings.
def finding_charts(run: Run, findings: Sequence[Finding], *, max_charts: int = 2, points: int = 120) -> list[Chart]:
    """Return charts of the most severe findings, each metric and place once, except the loss, which has its own chart.

    Args:
        run: The run, cut at the judged step.
        findings: All findings, most severe first.
        max_charts: Largest number of charts.
        points: Largest number of points per chart; each stretch keeps the one that stands out.
    """
    drawn: dict[tuple[str, str], Chart] = {}
    for place, finding in enumerate(findings[:MAX_FINDINGS]):
        if len(drawn) >= max_charts or finding.severity == "note":
            break
        metric = _metric(run, finding)
        if metric is None or metric in OF_LOSS:
            continue
        series = metric(run)
        label = finding.where if finding.where in series.places else series.labels[0]
        title = f"{finding.code}: {metric.name}" + (f" of {label}" if len(series.labels) > 1 else "")
        around = _around(series.only(label.__eq__).recorded_rows(), finding)
        if (metric.name, label) not in drawn and len(around.steps) >= MIN_POINTS and len(np.unique(around.values)) > 1:
            drawn[metric.name, label] = chart_of(
                around, name="finding", title=title, points=points, finding=place, unit=run.shown_unit(metric.unit)
            )
    return list(drawn.values())


def _metric(run: Run, finding: Finding) -> Metric | None:
    """Return the metric of a finding's chart: the one that it names, else one with its place, else the rule's first."""
    rule = rules().get(finding.code)
    if finding.first_step is None or rule is None:
        return None
    alone = [metric for metric in rule.metrics if len(metric(run).labels) == 1 and metric(run)]
    named = [metric for metric in alone if metric.name == finding.where]
    placed = [metric for metric in rule.metrics if finding.where in metric(run).places]
    first = [metric for metric in alone if metric is rule.metrics[0]]
    return next(iter([*named, *placed, *first]), None)


def _around(series: Series, finding: Finding) -> Series:
    """Return the part of a series around a finding, with its own length added before and after."""
    first, last = finding.first_step or 0, finding.last_step or finding.first_step or 0
    begin, end = np.searchsorted(series.steps, [first, last + 1]).tolist()
    room = max(MIN_ROWS_AROUND, end - begin)
    rows = slice(max(0, begin - room), end + room)
    return replace(series, steps=series.steps[rows], values=series.values[rows], recorded=series.recorded[rows])


# The four derived numbers of a run: divergence step, tau, spike flags, and gradient over weight.
DERIVED: tuple[Metric, ...] = (spike_flags, grad_to_weight, tau, tau_trend, train_loss_at_evals, val_loss)
"""Metrics from which the derived numbers are computed."""
HEALTHY_RATIOS = (1e-4, 1e-1)
"""Healthy range of the ratio of gradient to weight (F16)."""
MIN_EVALS = 5
"""Evaluations needed to find a lasting divergence: the best, three after it, and one to compare with."""
MAX_FLAGS = 100
"""Largest number of flagged steps in a report."""

T = TypeVar("T")


def derived(run: Run, findings: Iterable[Finding]) -> Derived:
    """Return the four derived numbers; a missing one is null with a reason."""
    reasons: dict[str, str] = {}

    def known(name: str, value: T | str) -> T | None:
        if isinstance(value, str):
            reasons[name] = value
            return None
        return value

    spikes = known("spike_flags", _flagged_steps(run, findings))
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
        trend=None if trend is None else encode_float(trend),
        points=len(rows),
    )


def _flagged_steps(run: Run, findings: Iterable[Finding]) -> list[int] | str:
    """Return the flagged steps; before the window of F15 is full, those of the findings on spikes."""
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
    """Return the extreme ratios, without tensors whose gradient cancels by construction, whose ratio is meaningless."""
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
        below=int((values < HEALTHY_RATIOS[0]).sum()),
        above=int((values > HEALTHY_RATIOS[1]).sum()),
    )
