"""The gauges of the panel: the vital signs of every step and the pace of every minute, from what was recorded last."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ckaudit.contract.float_overflow import takes_any_numbers
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import Number, to_word
from ckaudit.contract.schema.watch import Gauge
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.vital_signs import PER_MINUTE, PER_STEP
from ckaudit.run.run import Run
from ckaudit.run.scalars import SessionLogs
from ckaudit.run.series import Series
from ckaudit.run.units import in_catalogue_units

COUNTED = ("steps_seen", "tokens_seen")  # from the first step on, which the newest lines alone do not tell
RECENT = 256  # lines that gauges are computed from between two judgements
DRAWN = 40


class Vitals:
    """The newest lines of a run, and the gauges that its last judgement and they make together."""

    def __init__(self) -> None:
        """Begin with nothing recorded."""
        self._rows: deque[Mapping[str, Any]] = deque(maxlen=RECENT)
        self._judged: dict[str, Gauge] = {}

    def add(self, row: Mapping[str, Any]) -> None:
        """Take note of a line."""
        self._rows.append(row)

    @takes_any_numbers
    def judged(self, run: Run) -> None:
        """Take the gauges of a whole run."""
        self._judged = {name: gauge for name in (*PER_STEP, *PER_MINUTE) if (gauge := _gauge(name, run)) is not None}

    @takes_any_numbers
    def gauges(self, manifest: Manifest | None) -> tuple[tuple[Gauge, ...], tuple[Gauge, ...]]:
        """Return the vital signs and the pace; what was not recorded is said so."""
        logs = SessionLogs()
        for row in self._rows:
            logs.add(row)
        run = in_catalogue_units(Run("", manifest, scalars=logs.merged()[0].series()), {})
        return self._row(PER_STEP, run), self._row(PER_MINUTE, run)

    def _row(self, names: Sequence[str], run: Run) -> tuple[Gauge, ...]:
        return tuple(self._newest(name, run) for name in names)

    def _newest(self, name: str, run: Run) -> Gauge:
        known = self._judged.get(name)
        counted = name in COUNTED and not run.scalar(name)
        gauge = None if counted else _gauge(name, run)
        if gauge is None or (known is not None and (known.step or 0) > (gauge.step or 0)):
            return known or Gauge(name=name, unit=metrics()[name].unit)
        return gauge


def _gauge(name: str, run: Run) -> Gauge | None:
    """Return the newest value of a metric; None: it has none."""
    metric = metrics()[name]
    try:
        series = metric(run).recorded_rows()
    except Exception:  # noqa: BLE001  a metric that breaks is told by the judgement, and must not take the panel with it
        return None
    if not series:
        return None
    recent = tuple(_worst(metric, series, row) for row in range(max(0, len(series.steps) - DRAWN), len(series.steps)))
    return Gauge(name=name, unit=metric.unit, value=recent[-1], step=int(series.steps[-1]), recent=recent)


def _worst(metric: Metric, series: Series, row: int) -> Number:
    """Return one value of a row: a non-finite one before all, then the lowest or the highest as the metric says."""
    values = series.values[row][series.recorded[row]]
    ill = values[~np.isfinite(values)]
    if len(ill):
        return to_word(float(ill[0]))
    return to_word(float(values.min() if metric.worst == "low" else values[0] if metric.worst == "first" else values.max()))
