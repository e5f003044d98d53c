"""Two runs as the questions see them: aligned series, noise, and findings gained and lost."""

from collections.abc import Iterable

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.report import SEVERITIES, Finding
from ckaudit.diff.align import Axis, CommonAxis, PairedSeries, common_axis, pair_series
from ckaudit.diff.noise import MAX_FALSE_ALARMS, SEED, SEED_LEAD, Stretches, quantile, stretches
from ckaudit.metrics import Metric
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.progress import tokens_seen
from ckaudit.run.medians import median
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, Steps, at

COUNTED_SEVERITIES = SEVERITIES[:3]
"""Severities that count; a note is no illness."""

GRAVE_SEVERITIES = SEVERITIES[:2]
"""Severities that make a pair worse or better by themselves; findings that only need investigation vary with the seed."""


OF_CLOCK = ("SYS001", "SYS002", "SYS006", "SYS009", "RANK001", "RANK004")
"""Findings on the time of a step, its parts, its input and its log: they depend on the machine and its other work, so they do not
count in a comparison of two trainings."""


OF_PRECISION = ("MOVE001",)
"""Findings that a coarser dtype of the weights causes by itself: updates below its last digit vanish. The loss shows whether that
matters."""


class RunSide(Struct, frozen=True, eq=False):
    """One run with the findings of its audit.

    Attributes:
        run: The run.
        findings: All findings that count.
        limits: The vital checks that could not judge, in words; empty: all applicable ones could.
    """

    run: Run
    findings: tuple[Finding, ...] = ()
    limits: str = ""

    @property
    def is_ill(self) -> bool:
        """Whether anything more severe than a note was found."""
        return any(finding.severity != "note" for finding in self.findings)


class RunPair(Struct, frozen=True, eq=False):
    """Two runs on one axis.

    Attributes:
        left: The reference.
        right: The judged run.
        axes: The common axis.
        replicas: Runs that show the noise.
    """

    left: RunSide
    right: RunSide
    axes: CommonAxis = CommonAxis()
    replicas: tuple[RunSide, ...] = ()
    _paired: dict[str, PairedSeries] = field(default_factory=dict)

    def paired(self, metric: Metric) -> PairedSeries:
        """Return the values of a metric in both runs."""
        if metric.name not in self._paired:
            self._paired[metric.name] = pair_series(metric(self.left.run), metric(self.right.run), self.axes)
        return self._paired[metric.name]

    def on_axis(self, axis: Axis) -> "RunPair | None":
        """Return the same runs on another axis, None if it is not recorded."""
        other_axes = common_axis(self.left.run, self.right.run, axis)
        return None if other_axes.missing else RunPair(self.left, self.right, other_axes, self.replicas)

    @property
    def in_training(self) -> "RunPair":
        """The same runs, aligned by step instead of by loss: what a loss costs cannot be compared at equal losses."""
        return RunPair(self.left, self.right, CommonAxis(), self.replicas) if self.axes.axis == "loss" else self

    @property
    def fair(self) -> "RunPair":
        """The same runs aligned by tokens if equal steps have not seen as many; else unchanged."""
        on_axis = self.on_axis("tokens") if self.axes.axis != "tokens" else None
        plain = self.in_training
        return plain if on_axis is None or plain.have_equal_tokens() else on_axis

    def have_equal_tokens(self, *, slack: float = 0.01) -> bool:
        """Tell whether both have seen as many tokens at the last common step with a count, within `slack`."""
        seen = self.paired(tokens_seen)
        rows = np.flatnonzero(seen.finite[:, :1])[-1:]
        return not len(rows) or bool(np.isclose(seen.left[rows, 0], seen.right[rows, 0], rtol=slack)[0])

    def stretches(
        self,
        metric: Metric,
        column: int = 0,
        *,
        size: int = 0,
        last: int = 0,
        own: float | None = None,
        seed: float = SEED,
        ahead: float = SEED_LEAD,
    ) -> Stretches | None:
        """Return the difference of a column of a metric by segments; None with fewer than two common points.

        Args:
            metric: The metric.
            column: Index of the label.
            size: Points per segment; 0: from the length of the series.
            last: Number of points from the end that count; 0: all.
            own: Noise of both runs together, as in `noise.stretches`.
            seed: Effect of a seed on the level, relative to that noise.
            ahead: Lead of one seed over another.
        """
        both = self.paired(metric)
        if column >= len(both.labels):
            return None
        rows = np.flatnonzero(both.finite[:, column])[-last:]
        if len(rows) < 2:
            return None
        steps = both.steps[rows]
        replicas = self._of_replicas(metric, steps, both.labels[column])
        return stretches(
            steps, both.left[rows, column], both.right[rows, column], replicas, size=size, own=own, seed=seed, ahead=ahead
        )

    def level(self, metric: Metric, *, share: float = 0.05, min_points: int = 20, ahead: float = SEED_LEAD) -> Stretches | None:
        """Return segments of which the last is the final level of a series: `share` of its points, at least `min_points`.

        With 20 points about half of the noise comes from the batches, half from the seed.
        """
        points = int(self.paired(metric).finite[:, :1].sum())
        return self.stretches(metric, size=max(1, min(points // 2, max(min_points, round(share * points)))), ahead=ahead)

    def evaluation(self, metric: Metric, column: int = 0, *, seed: float = 1.0) -> Stretches | None:
        """Return segments of single evaluations.

        Args:
            metric: A held-out loss.
            column: Index of its label.
            seed: Effect of a seed on it, relative to the noise of the training loss: see docs/diff-calibration.md. A slice has
                only a part of the text, and is noisier accordingly.
        """
        train = self.level(train_loss_raw)
        parts = np.sqrt(max(1, len(self.paired(metric).labels)))
        own = None if train is None else train.alone * float(parts)
        return self.stretches(metric, column, size=1, last=100, own=own, seed=seed)

    def _of_replicas(self, metric: Metric, steps: Steps, label: str) -> list[Floats]:
        """Return each replica's values of a column at steps of the second run, if it has all of them."""
        own_steps = self.axes.matching_steps(steps)
        columns = [_looked_up(metric(side.run), own_steps, label) for side in self.replicas]
        return [column for column in columns if column is not None]


def level(stretches: Stretches, *, share: float = MAX_FALSE_ALARMS) -> tuple[float, float, float]:
    """Return the last level of both runs, and the largest difference that noise explains."""
    return float(stretches.left[-1]), float(stretches.right[-1]), quantile(share) * float(stretches.spread[-1])


def _looked_up(series: Series, steps: Steps, label: str) -> Floats | None:
    """Return a column at some steps; None if it is missing or ends earlier."""
    if label not in series.places:
        return None
    column = series.only(label.__eq__)
    aligned = at(column, steps)
    spacing = median(np.diff(column.steps)) if len(column.steps) > 1 else 0.0
    near = (aligned.age >= 0) & (aligned.age <= 2 * spacing)
    return aligned.values[:, 0] if len(steps) and near.all() else None


# Findings gained and lost: those that only one of two runs has, or has with a higher severity.
def gained_and_lost(both: RunPair) -> tuple[list[Finding], list[Finding]]:
    """Return the most severe finding of each illness that only the second run has, and of those that only the first has.

    Illnesses are identified by code, because the tensor that shows an illness first varies with the seed. An illness that a
    replica of the first run has too is chance, and not lost if a replica lacks it.
    """
    left, right = _worst(both.left.findings), _worst(both.right.findings)
    replicas = [_worst(side.findings) for side in both.replicas]
    gained = [one for code, one in right.items() if all(_graver(one, known.get(code)) for known in (left, *replicas))]
    lost = [one for code, one in left.items() if _graver(one, right.get(code)) and all(code in known for known in replicas)]
    return gained, lost


def is_decisive(finding: Finding, *, is_coarser: bool = False) -> bool:
    """Tell whether a finding that only one run has makes that run worse by itself.

    Args:
        finding: The finding.
        is_coarser: Whether that run has weights of another dtype, which its loss is to judge.
    """
    aside = OF_CLOCK + (OF_PRECISION if is_coarser else ())
    return finding.severity in GRAVE_SEVERITIES and finding.code not in aside


def differ_in_type(left: Run, right: Run) -> bool:
    """Tell whether a tensor that both train has different dtypes."""
    facts = left.tensors.facts, right.tensors.facts
    return any(name in facts[1] and fact.dtype != facts[1][name].dtype for name, fact in facts[0].items())


def _worst(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the most severe finding of each code, without notes."""
    worst: dict[str, Finding] = {}
    for finding in findings:
        if finding.severity in COUNTED_SEVERITIES and _graver(finding, worst.get(finding.code)):
            worst[finding.code] = finding
    return worst


def _graver(one: Finding, other: Finding | None) -> bool:
    return other is None or SEVERITIES.index(one.severity) < SEVERITIES.index(other.severity)
