"""MOE002: experts drop tokens."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.routing import moe_drop_rate, moe_util_entropy
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series
from ckaudit.run.spans import reaching_back, spans


@rule("MOE002", severity="sev1", needs=[moe_drop_rate], wants=[moe_util_entropy], unit="%")
def dropped_tokens(
    rate: Series,
    used: Series | None,
    *,
    usual_percent: float = 1.0,
    sev2_percent: float = 10.0,
    sev1_percent: float = 30.0,
    falling_share: float = 0.7,
    warmup: int = 100,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """Experts drop tokens.

    ## What it checks
    The share of routed tokens that found no room (M26; Switch stays below 1 %), at `min_points` points in a row after `warmup`
    steps or, in a shorter log, after its first third:

    - A share above `sev1_percent` percent is sev1 (SEV1-5).
    - A share above `usual_percent` percent is sev1 too while it rises: the first third of the points is below `falling_share` of
      the last (SEV1-5).
    - A share above `sev2_percent` percent that is steady is sev2.
    - A smaller share is noted, and so is one up to `sev1_percent` percent that falls: the last third of the points is below
      `falling_share` of the first.
    - A hit that is more than a note begins with the first of the points in a row above `sev2_percent` percent, in the warm-up or
      not.
    ## Why it matters
    A dropped token passes the layer unchanged: its share of the compute and of the data is lost.
    ## False alarms
    Some routers drop tokens and are well:

    - A young router drops many tokens, fewer all the time: healthy models of the lab's dev split fall from 30 % to 3 % in 400
      steps.
    - Others drop 13 to 17 % up to step 300 while all experts are used alike: there twice `sev2_percent` is allowed.
    - With few tokens in a batch, a capacity of 1.25 times the mean share is exceeded by chance now and then: some percent stay.
    """
    known = np.flatnonzero(rate.finite[:, 0])
    if len(known) < min_points:
        yield Skip("too_few_points", f"{len(known)} points of moe_drop_rate; {min_points} are needed")
        return
    late = np.arange(len(rate.steps)) >= known[min(int((rate.steps[known] <= warmup).sum()), len(known) // 3)]
    needed = min(min_points, max(2, int(late[known].sum())))
    for span in spans(rate, (rate.values > usual_percent) & late[:, None], min_points=needed):
        values = rate.values[known[known <= span.rows[-1]], 0]
        third = max(1, len(values) // 3)
        first, last = median(values[:third]), median(values[-third:])
        rising, steady = last > first / falling_share, last >= falling_share * first
        tail = ", and more and more" if rising else "" if steady else ", but fewer"
        usually = median(rate.values[span.rows, 0])
        limit = 2 * sev2_percent if _is_young_and_even(used, rate, warmup) else sev2_percent
        is_severe, dear = usually > sev1_percent or rising, usually > limit and steady
        whole = reaching_back(span, rate, rate.values > limit) if is_severe or dear else span
        yield Hit.over(
            whole,
            "sev1" if is_severe else "sev2" if dear else "note",
            "up to {value:.3g} % of the tokens sent to the experts of all layers are dropped" + tail,
            badness=rate.values,
            limit=usual_percent,
        )


def _is_young_and_even(used: Series | None, rate: Series, warmup: int, *, even: float = 0.9) -> bool:
    """Tell whether a run ends within five warm-ups and uses all experts alike: then the capacity is small, and nothing is ill."""
    return used is not None and int(rate.steps[-1]) <= 5 * warmup and median(used.values[used.finite]) >= even
