"""FILE003: checkpoints take longer, or become larger, than they were."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.observability import checkpoint_size, checkpoint_time
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.robust import deviations_from_past
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("FILE003", severity="sev2", needs=[], wants=[checkpoint_time, checkpoint_size], unit="1")
def heavy_checkpoints(
    time: Series | None,
    size: Series | None,
    *,
    min_seconds: float = 30.0,
    min_megabytes: float = 100.0,
    min_relative_growth: float = 1.0,
    history: int = 5,
    k: float = 6.0,
) -> Iterator[Hit | Skip]:
    """Checkpoints take longer, or become larger, than they were.

    ## What it checks
    The time and the size of each checkpoint, against the median of all before it, once there are `history` of them (M62 spike or
    growth, M63 sudden jump). A checkpoint is heavy where it exceeds that median by `k` robust deviations, by
    `min_relative_growth` of the median, and by `min_seconds` seconds or `min_megabytes` megabytes.
    ## Why it matters
    The store fills up or fails, or something is saved that should not be; the training waits for it.
    ## False alarms
    Analysis checkpoints are small, and their grids take turns: their changes stay below `min_seconds` and `min_megabytes`.
    """
    sizes = [
        (time, min_seconds, "takes {value:.3g} s, before {limit:.3g}"),
        (size, 1e6 * min_megabytes, "is {value:.3g} bytes, before {limit:.3g}"),
    ]
    if time is None and size is None:
        yield needs_one_of(checkpoint_time, checkpoint_size)
        return
    for series, min_size, what in sizes:
        if series is None:
            continue
        away, usual = deviations_from_past(series, min_deviation=min_size, relative=min_relative_growth, history=history, k=k)
        for span in spans(series, np.nan_to_num(away) > 1):
            yield Hit.off_usual(span, series, away, usual, "a checkpoint " + what)
