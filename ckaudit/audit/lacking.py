"""Why a number is missing: which of its inputs is, or what is wrong with those that are there."""

import numpy as np

from ckaudit.audit.remedies import made_of_entries
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.run.run import Run


def missing_inputs(run: Run, name: str) -> tuple[str, ...]:
    """Return the entries that one is made of and the run has not, where there are any."""
    return tuple(each for each in made_of_entries(name) if not metrics()[each](run))


def unusable(run: Run, name: str) -> str:
    """Return what is wrong with inputs that are all there, or an empty string where nothing is known to be.

    Too few points and values that are not finite are mended by no line.
    """
    inputs = made_of_entries(name)
    if not inputs or missing_inputs(run, name):
        return ""
    for each in inputs:
        series = metrics()[each](run)
        if not series.finite.any():
            word = "NaN" if np.isnan(series.values[series.recorded]).all() else "not finite"
            return f"{series.points} {'evaluations' if each == 'val_loss' else 'points'} of {each}, all {word}"
    series, least = metrics()[inputs[0]](run), entries()[name].least
    usable = int(series.finite.any(axis=1).sum())
    if usable < least:
        return f"too few points of {inputs[0]} ({usable} of {least})"
    return f"{usable} points of {inputs[0]}, too close together for it" if least else ""
