"""What a run lacks: which number, who waits for it, which of its inputs is missing, or what is wrong with them."""

import numpy as np
from msgspec import Struct

from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import RANKS, Importance, entries
from ckaudit.run.run import Run


class Lack(Struct, frozen=True, kw_only=True):
    """One number that is missing, or a side of it that a check reads.

    Attributes:
        name: The entry of the catalogue, or an argument of the recorder.
        level: How much the run needs it.
        waiting: Rules that cannot judge without it.
        readers: Codes of rules and names of causes that would read it.
        by: The entry whose line records it: itself, or what it is made of.
    """

    name: str
    level: Importance
    waiting: tuple[str, ...] = ()
    readers: tuple[str, ...]
    by: str

    @property
    def urgency(self) -> tuple[int, int, int]:
        """Sort key: what most rules wait for first, then what most rules and causes would read, then the most needed."""
        return -len(self.waiting), -len(self.readers), RANKS.index(self.level)


def made_of_entries(name: str) -> tuple[str, ...]:
    """Return the entries that one is made of, down to those that are recorded themselves; empty: it is one of these.

    >>> made_of_entries("train_val_gap"), made_of_entries("val_loss")
    (('val_loss', 'train_loss_raw'), ())
    """
    found = (each for need in entries()[name].needs for each in (made_of_entries(need) or (need,)))
    return tuple(dict.fromkeys(found))


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
    for input_ in inputs:
        series = metrics()[input_](run)
        if not series.finite.any():
            word = "NaN" if np.isnan(series.values[series.recorded]).all() else "not finite"
            return f"{series.points} {'evaluations' if input_ == 'val_loss' else 'points'} of {input_}, all {word}"
    series, least = metrics()[inputs[0]](run), entries()[name].least
    usable = int(series.finite.any(axis=1).sum())
    if usable < least:
        return f"too few points of {inputs[0]} ({usable} of {least})"
    return f"{usable} points of {inputs[0]}, too close together for it" if least else ""
