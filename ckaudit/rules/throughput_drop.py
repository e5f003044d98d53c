"""SYS006: less goes through, for the same hardware."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.speed import mfu, step_time, tokens_per_sec
from ckaudit.metrics.tumbling import windows
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series, single
from ckaudit.run.spans import spans


@rule("SYS006", severity="sev1", needs=[], wants=[mfu, tokens_per_sec, step_time], unit="1")
def throughput_drop(
    used: Series | None, speed: Series | None, time: Series | None, *, drop: float = 0.1, collapse: float = 0.5, k: float = 6.0,
    lasting: int = 3, window: int = 20, min_points: int = 6,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """Less goes through, for the same hardware.

    ## What it checks
    The utilisation of the hardware's peak (M41), or where no step was timed the tokens per second (M39), against the median of
    its first third: lower by more than `drop` and `k` robust deviations of that third, at `lasting` points in a row, is sev2
    (the catalogue's bad series falls from 55 to 46 %); below `collapse` of it is sev1 (SEV1-4). Where there are more than ten
    times `window` points, medians of that many are judged.
    ## Why it matters
    The same budget buys fewer tokens, and only this number shows it.
    ## False alarms
    Noise of the clock is in the deviations, from `min_points` points on. Shorter rows or smaller batches use the hardware
    less, rightly.
    """
    series = used if used is not None else speed if time is None else None
    if series is None:
        yield Skip("not_recorded", "needs mfu")
        return
    if series.points > 10 * window:
        steps, values = windows(series, window)
        series = single(series.name, series.unit, steps[:, -1], np.median(values, axis=1))
    if series.points < min_points:
        yield Skip("too_few_points", f"{series.points} points of {series.name}; {min_points} are needed")
        return
    known = series.values[series.finite[:, 0], 0]
    first = known[: max(2, len(known) // 3)]
    usual = float(np.median(first))
    spread = k * 1.4826 * float(np.median(np.abs(first - usual)))
    low = series.values < usual - max(drop * usual, spread)
    for span in spans(series, low, min_points=lasting):
        grave = bool(np.median(series.values[span.rows, 0]) < collapse * usual)
        yield Hit.over(
            span, "sev1" if grave else "sev2", series.name + " falls to {value:.4g}, from {limit:.4g}", badness=-series.values,
            value=series.values, limit=usual,
        )  # fmt: skip
