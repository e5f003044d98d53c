"""RANK004: communication takes more and more of a step."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.hardware import comm_time_frac
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@rule("RANK004", severity="sev2", needs=[comm_time_frac], unit="1")
def communication_rising(
    share: Series, *, min_rise: float = 0.1, parts: int = 3, min_points: int = 3, max_dip_share: float = 0.2
) -> Iterator[Hit | Skip]:
    """Communication takes more and more of a step.

    ## What it checks
    The share of a step that is spent communicating (M45: rising trend). The medians of `parts` equal pieces of the run rise from
    each to the next, by `min_rise` in all. A piece may lie below the one before by `max_dip_share` of that rise, for a share that
    rises in one step is flat from there on.
    ## Why it matters
    A link degrades or a rank falls behind: the others wait for it inside the exchange.
    ## False alarms
    Shares wander by some percent. At least `min_points` points are needed.
    """
    if share.points < min_points:
        yield Skip("too_few_points", f"{share.points} points of comm_time_frac; {min_points} are needed")
        return
    rows = np.flatnonzero(share.finite[:, 0])
    middles = np.array([median(piece) for piece in np.array_split(share.values[rows, 0], parts)])
    whole = float(middles[-1] - middles[0])
    if whole > min_rise and (np.diff(middles) > -max_dip_share * whole).all():
        higher = share.values[rows, 0] > middles[0] + max_dip_share * whole
        start = len(rows) // parts + int(higher[len(rows) // parts :].argmax())
        yield Hit.at(
            share.steps[rows[start:]],
            "sev2",
            "communication takes {value:.0%} of a step, and {limit:.0%} at the beginning",
            where="communication",
            value=float(middles[-1]),
            limit=float(middles[0]),
            worst=-1,
        )
