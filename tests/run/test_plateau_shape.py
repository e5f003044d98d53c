"""Curves that stand still, and those that only look so."""

import numpy as np
import pytest

from ckaudit.run.cancelled import overcome
from ckaudit.run.falls import standstill
from ckaudit.run.series import single

STEPS = np.arange(1, 481)


def curve(*parts, noise=0.01):
    """Return a curve made of (length, from, to) with noise that alternates, so that medians keep the level."""
    values = np.concatenate([np.linspace(start, end, length) for length, start, end in parts])
    return values + noise * np.where(np.arange(len(values)) % 2, 1, -1)


@pytest.mark.parametrize(
    ("losses", "kind"),
    [
        (curve((480, 4.56, 4.55)), "flat"),
        (curve((60, 4.5, 3.6), (60, 3.6, 4.45), (360, 4.45, 4.5)), "lost"),
        (curve((60, 4.5, 2.84), (420, 2.84, 2.84)), "rests"),
        (curve((60, 4.5, 2.84), (420, 2.84, 2.7)), None),  # it still falls
        (curve((60, 4.5, 1.0), (420, 1.0, 1.0)), None),  # low enough to have learnt
        (curve((60, 1.5, 1.2), (420, 1.2, 1.2)), None),  # a fine-tuning
        (curve((480, 4.5, 1.2)), None),
        (curve((480, 0.01, 0.01), noise=0.05), None),  # a loss around zero has no level
    ],
)
def test_what_stands_still_is_told_by_its_shape(losses, kind):
    found = standstill(STEPS, losses, None)
    assert (found.kind if found else None) == kind


def test_a_log_that_starts_late_is_not_judged():
    assert standstill(STEPS + 5_000, curve((480, 4.56, 4.55)), None) is None


@pytest.mark.parametrize(
    ("norms", "left_out"),
    [
        ([1.0, np.inf, np.nan, 2.0], [2, 3]),
        ([1.0, np.inf, 2.0, np.inf], [2, 4]),
        ([1.0, np.inf, 2.0, np.nan, np.nan], [2]),
        ([1.0, 2.0, np.nan], []),
        ([1.0, np.nan, 0.0], []),
        ([np.nan, np.nan], []),
    ],
)
def test_a_gradient_is_left_behind_where_a_later_one_is_finite(norms, left_out):
    series = single("grad_global_norm", "1", np.arange(1, len(norms) + 1), np.array(norms))
    assert (np.flatnonzero(overcome(series)[:, 0]) + 1).tolist() == left_out
