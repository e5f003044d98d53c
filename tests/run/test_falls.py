"""Curves that stand still, and those that only look so."""

import numpy as np
import pytest

from ckaudit.run.falls import plateau_of

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
    found = plateau_of(STEPS, losses, None)
    assert (found.kind if found else None) == kind


def test_a_log_that_starts_late_is_not_judged():
    assert plateau_of(STEPS + 5_000, curve((480, 4.56, 4.55)), None) is None
