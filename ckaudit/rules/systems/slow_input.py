"""SYS001: a large part of a step is spent waiting for data."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.hardware import dataloader_stall_frac
from ckaudit.metrics.speed import step_time
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_reinforcement_learning
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.spans import spans

MIN_LASTING_SHARE = 0.05
"""Share of the points below which waits that are over cost less than looking for them."""


@rule("SYS001", severity="sev2", needs=[dataloader_stall_frac], wants=[step_time, FACTS], unit="1", memory=3)
def slow_input(
    stall: Series,
    time: Series | None,
    facts: Manifest | None,
    *,
    max_share: float = 0.2,
    min_seconds: float = 0.02,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """A large part of a step is spent waiting for data.

    ## What it checks
    The share of the step before the forward pass begins (M44: sustained above 10 to 20 %), above `max_share` at `min_points`
    points in a row, or at the last two of fewer than nine. The wait must be more than `min_seconds` seconds where steps are
    timed.
    ## Why it matters
    Accelerators stand idle for as long; more workers or a faster store cost less than idle accelerators.
    ## False alarms
    Some waits are short, or are none for data:

    - A model whose step takes a few milliseconds spends half of it in the loop around it. That is not the loader, and
      `min_seconds` hides it. In the lab's dev split small networks wait for 5 ms, and 200 ms for a slow loader.
    - A wait that has passed is a note where all waits together are less than 5 % of the points.
    - A policy plays its episodes before the update, and waits for no loader: it is not judged.
    """
    if is_reinforcement_learning(facts):
        yield Skip("not_applicable", "a policy plays before each update, and waits for no loader")
        return
    if stall.points < min_points:
        yield from too_few(stall, min_points)
        return
    needed = min(min_points, max(2, stall.points // 3))
    found = []
    waits = np.full(stall.values.shape, np.inf) if time is None else stall.values * _usual(time, stall.steps)[:, None]
    for span in spans(stall, (stall.values > max_share) & ~(waits < min_seconds), min_points=needed):
        if span.points < min_points and span.last != int(stall.steps[-1]):
            continue  # two lines of a short log may hold an evaluation each
        found.append(span)
    has_passed = sum(span.points for span in found) < MIN_LASTING_SHARE * stall.points
    for span in found:
        is_over = has_passed and span.last != int(stall.steps[-1])
        yield Hit.over(
            span,
            "note" if is_over else "sev2",
            "up to {value:.0%} of a step is spent waiting for data; above {limit:.0%} the input is the bottleneck"
            + ("; it was short" if is_over else ""),
            badness=stall.values,
            limit=max_share,
        )


def _usual(time: Series, steps: Steps, reach: int = 25) -> Floats:
    """Return the median duration of the `reach` steps up to each, NaN where none is known: evaluations lie between steps."""
    known = np.flatnonzero(time.finite[:, 0])
    ends = np.searchsorted(time.steps[known], steps, side="right")
    starts = np.searchsorted(time.steps[known], steps - reach, side="right")
    values = time.values[known, 0]
    middles = [median(values[a:b]) if b > a else np.nan for a, b in zip(starts, ends, strict=True)]
    return np.array(middles, float)
