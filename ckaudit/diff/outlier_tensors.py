"""Tensors, layers and heads that have come further apart than their like, where runs with different noise part."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.diff import Departure
from ckaudit.diff.align import Paired
from ckaudit.diff.compared_series import PLACES
from ckaudit.diff.noise import quantile
from ckaudit.diff.run_pair import Both
from ckaudit.metrics.reductions import row_medians
from ckaudit.run.robust import MAD_TO_SIGMA
from ckaudit.run.series import Floats, Mask


def far_places(both: Both, *, of_each: int = 4, share: float = 0.01, min_deviation: float = 0.05) -> list[Departure]:
    """Return where each quantity first leaves its band for good, `of_each` places of it at most.

    The band of log ratios holds what a tensor's own ratio does from checkpoint to checkpoint, and how far all tensors
    lay apart at the first one, where only seeds tell them.

    Args:
        both: The runs.
        of_each: Places of a quantity.
        share: Of places outside by chance, all checkpoints together.
        min_deviation: Smallest standard deviation of a log ratio that is believed.
    """
    departures: list[Departure] = []
    for metric in PLACES:
        paired = both.paired(metric)
        if len(paired.steps) < 3 or not len(paired.labels):
            continue
        with np.errstate(all="ignore"):
            ratio = np.log(np.abs(paired.right) / np.abs(paired.left))  # (T, P)
        ratio = np.where(paired.finite & np.isfinite(ratio), ratio, np.nan)
        limit = quantile(share / max(1, ratio.size))
        band = limit * np.sqrt(_own(ratio) ** 2 + max(min_deviation, _at_first(ratio)) ** 2)  # (P,)
        cells = sorted(_first_lasting(np.abs(ratio) > band), key=lambda cell: (cell[0], cell[1]))
        departures += [_departure(metric.name, paired, row, column, float(band[column])) for row, column in cells[:of_each]]
    return departures


def _own(ratio: Floats) -> Floats:
    """Return how far each column goes from one row to the next, as a standard deviation, shape (P,)."""
    moves = row_medians(np.ascontiguousarray(np.abs(np.diff(ratio, axis=0)).T))
    return np.asarray(MAD_TO_SIGMA * np.nan_to_num(moves) / np.sqrt(2))


def _at_first(ratio: Floats) -> float:
    """Return how far apart the columns lie in the first row that has any."""
    rows = np.flatnonzero(np.isfinite(ratio).any(axis=1))
    return float(MAD_TO_SIGMA * np.nanmedian(np.abs(ratio[rows[0]]))) if len(rows) else 0.0


def _first_lasting(outside: Mask, *, lasting: int = 3) -> Iterator[tuple[int, int]]:
    """Yield the row and column of the first of `lasting` rows outside in a row, or of all that are left."""
    rows = len(outside)
    for column in np.flatnonzero(outside.any(axis=0)):
        held = outside[:, column]
        for row in np.flatnonzero(held):
            if held[row : min(rows, row + lasting)].all() and rows - row >= min(lasting, 2):
                yield int(row), int(column)
                break


def _departure(name: str, paired: Paired, row: int, column: int, band: float) -> Departure:
    left, right, step = float(paired.left[row, column]), float(paired.right[row, column]), int(paired.steps[row])
    where = paired.labels[column]
    return Departure(
        statistic=name,
        where=where,
        step=step,
        left=left,
        right=right,
        band=abs(left) * float(np.expm1(band)),
        unit=paired.unit,
        message=f"from step {step} on {name} of {where} is {left:.4g} in the first and {right:.4g} in the second, "
        f"a factor of {right / left:.3g}; noise explains {np.exp(band):.3g}",
    )
