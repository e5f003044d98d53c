"""The history that is kept: the newest values of every name in full, the older ones thinned, so that memory is bounded."""

from itertools import islice

import numpy as np

from ckaudit.run.merge_column import Joiner
from ckaudit.run.scalars import ScalarLog
from ckaudit.run.series import Floats, Mask, Steps

NEAR = 4096
"""Values kept in full; many times the longest `memory` that a rule and its metrics have together."""
FAR = 4096
"""Values kept of all that came before."""
MOST = 16384
"""Values at which a column is thinned, so that thinning costs a constant per value."""


def thin(log: ScalarLog) -> int | None:
    """Thin every column that grew too long, in place.

    Of what is older than the newest `NEAR` values the first of each of `FAR` equal stretches of steps stays, the same ones in
    all columns of the same steps, and each that is not finite. A name that is logged now and then stays whole.

    Returns:
        The first step that is now kept in full; None: nothing was thinned.
    """
    joiner, firsts = Joiner(), []
    for column in log.numbers.values():
        joined = joiner.join(column)
        if len(joined.steps) >= MOST:
            kept = _kept(joined.steps, joined.values)
            column.parts = [(joined.steps[kept], joined.values[kept])]
            firsts.append(int(joined.steps[-NEAR]))
        elif len(column.parts) > 1:
            column.parts = [(joined.steps, joined.values)]
    for name, words in log.words.items():
        if len(words) >= MOST:
            log.words[name] = _thinned_words(words)
    return max(firsts, default=None)


def size(log: ScalarLog) -> int:
    """Return how many values the longest column holds."""
    return max((sum(len(steps) for steps, _ in each.parts) + len(each.steps) for each in log.numbers.values()), default=0)


def stretches(log: ScalarLog) -> int:
    """Return in how many pieces the columns lie at most."""
    return max((len(each.parts) for each in log.numbers.values()), default=0)


def _kept(steps: Steps, values: Floats) -> Mask:
    older = len(values) - NEAR
    kept = ~np.isfinite(values)
    if kept.sum() > FAR:  # a name that is not a number for most of the run
        kept[:] = False
    # By steps, not by rows: what was thinned before must not be thinned again and again until the beginning is gone.
    turn = (steps[:older] - steps[0]) * FAR // max(1, int(steps[older] - steps[0]))
    kept[:older] |= np.diff(turn, prepend=-1) != 0
    kept[older:] = True
    return kept


def _thinned_words(words: dict[int, str]) -> dict[int, str]:
    older = len(words) - NEAR
    return dict(islice(words.items(), 0, older, -(-older // FAR))) | dict(islice(words.items(), older, None))
