"""RANK001: one rank is slower than the others."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.ranks import behind_others, rank_step_time, slowest, straggler_ratio
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("RANK001", severity="sev2", needs=[straggler_ratio], wants=[rank_step_time], unit="1", memory=5)
def straggler(
    ratio: Series, times: Series | None, *, max_ratio: float = 1.25, min_points: int = 3, lasting_points: int = 5
) -> Iterator[Hit | Skip]:
    """One rank is slower than the others.

    ## What it checks
    How long a rank's own step takes, without waiting for others:

    - The step takes more than `max_ratio` times the median of the other ranks', at `lasting_points` checkpoints in a row.
    - Where no rank is that slow for that long: the slowest rank's step, whichever it is, takes more than `max_ratio` times the
      median rank's (M47) at `min_points` points in a row.
    - In the lab's dev split equal ranks that share a machine reach 1.07 five times in a row and 1.8 once; one that makes each
      forward pass four times stays above 1.75.
    ## Why it matters
    All ranks wait for the slowest one: its lost time is multiplied by their number.
    ## False alarms
    A single slow checkpoint is not reported.
    """
    yield from too_few(ratio, min_points)
    if times is not None:
        behind = behind_others(times)
        slow = list(spans(behind, behind.values > max_ratio, min_points=lasting_points))
        for span in slow:
            yield Hit.over(
                span,
                "sev2",
                "{where} takes up to {value:.2f} times as long as the median of the others",
                badness=behind.values,
                limit=max_ratio,
            )
        if slow:
            return
    for span in spans(ratio, ratio.values > max_ratio, min_points=min_points):
        hit = Hit.over(
            span,
            "sev2",
            "{where} takes up to {value:.2f} times as long as the median rank",
            badness=ratio.values,
            limit=max_ratio,
        )
        often = slowest(times, np.isin(times.steps, span.steps)) if times is not None else None
        yield replace(hit, where=often[0] if often else "the slowest rank")
