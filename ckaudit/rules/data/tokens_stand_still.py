"""DATA010: steps are taken and no token is counted."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.progress import tokens_seen
from ckaudit.rules.rule import Hit, Skip, rule, true_stretches
from ckaudit.run.series import Series

MIN_POINTS = 5


@rule("DATA010", severity="sev2", needs=[tokens_seen], unit="tokens")
def tokens_stand_still(
    tokens: Series, *, min_stretch: int = 20, min_ratio: float = 5.0, min_growths: int = 3
) -> Iterator[Hit | Skip]:
    """Steps are taken and no token is counted.

    ## What it checks
    Stretches of logged steps over which the count of tokens seen does not grow (M01: no growth for many steps). A stretch is
    reported where all of these hold, which are starting values:

    - The stretch has `min_stretch` logged steps or more; in a log of few lines, a third of them.
    - The stretch is `min_ratio` times longer than any such stretch before.
    - The count has grown `min_growths` times until then, or never grows at all.
    ## Why it matters
    The loader is stuck, or its rows are all padding: time passes and nothing is learnt.
    ## False alarms
    A count that was rounded stands still between two of its digits: then all of its stretches are long.
    """
    rows = np.flatnonzero(tokens.finite[:, 0])
    if len(rows) < MIN_POINTS:
        yield Skip("too_few_points", f"{len(rows)} values of tokens_seen; {MIN_POINTS} are needed")
        return
    min_stretch, min_growths = (min_stretch, min_growths) if len(rows) > 2 * min_stretch else (max(3, len(rows) // 3), 2)
    still = np.diff(tokens.values[rows, 0]) <= 0
    longest = 0
    for start, end in true_stretches(still):
        length = end - start
        known = (~still[:start]).sum() >= min_growths or length == len(rows) - 1
        if length >= min_stretch and length > min_ratio * longest and known:
            yield Hit.at(
                tokens.steps[rows[start + 1 : end + 1]],
                "sev2",
                f"{{value:.6g}} tokens are counted at step {{first}}, and not one more in {length} logged steps",
                where="tokens_seen",
                value=float(tokens.values[rows[end], 0]),
            )
        longest = max(longest, length)
