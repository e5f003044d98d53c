"""Intervals: consecutive cells that match make one span, not one item per step."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Floats, Mask, Series, Steps


class Span(Struct, frozen=True, eq=False):
    """Consecutive recorded points of one label.

    Attributes:
        label: Tensor, block, head or slice.
        column: Index of the label in the series.
        rows: Rows of the series, shape (K,).
        steps: Their steps, shape (K,).
    """

    label: str
    column: int
    rows: Steps
    steps: Steps

    @property
    def first(self) -> int:
        """First step."""
        return int(self.steps[0])

    @property
    def last(self) -> int:
        """Last step."""
        return int(self.steps[-1])

    @property
    def points(self) -> int:
        """Number of recorded points inside."""
        return len(self.rows)

    def worst(self, badness: Floats) -> tuple[int, float]:
        """Return the step and the value where `badness`, shape (T, P), is greatest."""
        inside = badness[self.rows, self.column]
        index = int(np.argmax(inside))
        return int(self.steps[index]), float(inside[index])


def spans(series: Series, mask: Mask, *, among: Mask | None = None, min_points: int = 1) -> Iterator[Span]:
    """Yield each maximal run of true cells of each label, in order of labels, then of steps.

    Args:
        series: Gives steps and labels.
        mask: Cells to look for, shape (T, P).
        among: Cells that count, shape (T, P); the others neither belong to a run nor break it. Default: the finite ones, because
            non-finite cells belong to a rule of their own.
        min_points: Shorter runs are skipped.
    """
    among = series.finite if among is None else among
    hit = mask & among
    for column in np.flatnonzero(hit.any(axis=0)):
        rows = np.flatnonzero(among[:, column])
        flags = np.concatenate(([False], hit[rows, column], [False]))
        edges = np.flatnonzero(flags[1:] != flags[:-1])
        for start, end in zip(edges[::2], edges[1::2], strict=True):
            if end - start >= min_points:
                inside = rows[start:end]
                yield Span(series.labels[column], int(column), inside, series.steps[inside])


def reaching_back(span: Span, series: Series, mask: Mask) -> Span:
    """Return a span extended by the matching points right before it, which were not judged yet and show when it began.

    Args:
        span: An interval of `series`.
        series: Gives the steps; shape (T, P).
        mask: Cells that match, shape (T, P).
    """
    known = np.flatnonzero(series.finite[: span.rows[0], span.column])
    other = np.flatnonzero(~mask[known, span.column])
    before = known[int(other[-1]) + 1 :] if len(other) else known
    rows = np.concatenate([before, span.rows])
    return Span(span.label, span.column, rows, series.steps[rows])
