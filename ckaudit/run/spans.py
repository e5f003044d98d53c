"""Intervals: a run of equal cells is one thing that happened, not a thing per step."""

from collections.abc import Iterator

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Floats, Mask, Series, Steps


class Span(Struct, frozen=True, eq=False):
    """Consecutive recorded points of one label.

    Attributes:
        label: Tensor, block, head or slice.
        column: Its place among the series' labels.
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
        """Recorded points inside."""
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
        mask: What is looked for, shape (T, P).
        among: Cells that count at all, shape (T, P); the others neither belong to a run nor break it.
            Default: the finite ones, since non-finite cells are the business of one rule alone.
        min_points: Shorter runs are passed over.
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
    """Return a span and the recorded points right before it that are in `mask` too: what was not judged yet tells when it began.

    Args:
        span: An interval of `series`.
        series: Gives steps; shape (T, P).
        mask: What counts as the same, shape (T, P).
    """
    known = np.flatnonzero(series.finite[: span.rows[0], span.column])
    other = np.flatnonzero(~mask[known, span.column])
    before = known[int(other[-1]) + 1 :] if len(other) else known
    rows = np.concatenate([before, span.rows])
    return Span(span.label, span.column, rows, series.steps[rows])
