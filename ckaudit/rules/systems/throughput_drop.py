"""SYS006: less goes through, for the same hardware."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.progress import tokens_seen
from ckaudit.metrics.reductions import windows
from ckaudit.metrics.speed import mfu, samples_per_sec, seconds_between, step_time, tokens_per_sec
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.curve_shapes import lasting_fall
from ckaudit.run.medians import median
from ckaudit.run.robust import ENOUGH_FOR_NOISE, MAD_TO_SIGMA, difference_noise
from ckaudit.run.run_facts import resume_steps
from ckaudit.run.series import Floats, Series, Steps, at, single
from ckaudit.run.spans import spans

MIN_POINTS = 3

LARGE_SPEED_DROP = 0.2
"""A lasting drop of tokens or samples per second is bad from this share on (M39); utilization has its own (M41)."""

MAX_LOST_SHARE = 0.05
"""A fall that is over and has cost no more than this share of its session's work is not worth a search."""

WINDOW = 20
"""Number of points of a long series that are judged by their median."""


@rule("SYS006", severity="sev1", needs=[], wants=[mfu, tokens_per_sec, samples_per_sec, step_time, tokens_seen, FACTS], unit="1")
def throughput_drop(
    used: Series | None,
    speed: Series | None,
    samples: Series | None,
    time: Series | None,
    tokens: Series | None,
    facts: Manifest | None,
    *,
    min_drop: float = 0.1,
    min_drop_of_few: float = 0.3,
    sev1_share: float = 0.6,
    k: float = 6.0,
    lasting_points: int = 3,
    min_lost_seconds: float = 600.0,
) -> Iterator[Hit | Skip]:
    """Less goes through, for the same hardware.

    ## What it checks
    The utilisation of the hardware's peak (M41), or the tokens (M39) or samples per second, against the median of its first
    third. Of more than 200 points, medians of twenty are judged:

    - Throughput is lower by more than `min_drop`, by `k` robust deviations of that third and by three deviations of the noise, at
      `lasting_points` points in a row: sev2 (the catalogue's bad series falls from 55 to 46 %).
    - A slow slide that ends lower by `min_drop` and five standard errors is sev2; in fewer than eight points, one that ends lower
      by `min_drop_of_few`.
    - A fall that ends below `sev1_share` of what throughput was is sev1 (SEV1-4).
    - Tokens per second are left to another rule, on the time of a step, where a step has as many tokens as ever.
    - In tokens or samples per second, a fall that is sev2, or sev1 and passes, is a note where steps are timed and it lost less
      than `min_lost_seconds` seconds.
    - A fall of tokens or samples per second by less than a fifth is a note (M39: a drop by 20 %).
    - A fall that has passed, and cost less than a twentieth of the work of its session, is a note.
    ## Why it matters
    The same budget buys fewer tokens, and only this number shows it.
    ## False alarms
    Some falls are right, or only in the clock:

    - The first line of a start times what no later one does, such as an empty queue: where the second is far lower, the first is
      left out.
    - Noise of the clock is part of the deviations, and on a shared machine single points are far out.
    - Shorter rows or smaller batches rightly use the hardware less.
    - A run that was taken up again may have other hardware: each of its sessions is judged by itself.
    """
    is_made_of_clock = _is_made_of_clock(speed, time, tokens, min_drop)
    series = next((known for known in (used, None if is_made_of_clock else speed, samples) if known is not None), None)
    if series is None:
        yield Skip("not_recorded", "needs mfu")
        return
    if series.points > 10 * WINDOW:
        steps, values = windows(series, WINDOW)
        series = single(series.name, series.unit, steps[:, -1], np.median(values, axis=1))
    needed = ENOUGH_FOR_NOISE if is_made_of_clock else MIN_POINTS  # a clock holds evaluations and checkpoints too
    if series.points < needed:
        yield Skip("too_few_points", f"{series.points} points of {series.name}; {needed} are needed")
        return
    known = np.flatnonzero(series.finite[:, 0])
    for part in np.split(known, np.searchsorted(series.steps[known], [seam + 1 for seam in resume_steps(facts)])):
        settled = _settled(series, part, 1 - min_drop_of_few)
        if len(settled) >= MIN_POINTS:
            for hit in _falls(series, settled, min_drop, min_drop_of_few, sev1_share, k, lasting_points):
                goes_on = hit.last == int(series.steps[settled[-1]])
                seconds = _lost_seconds(hit, time) if used is None else np.inf
                cheap = seconds < min_lost_seconds and not (goes_on and hit.severity == "sev1")
                has_passed = not goes_on and _lost_share(hit, len(settled)) < MAX_LOST_SHARE
                small = used is None and (hit.value or 0.0) > (1 - LARGE_SPEED_DROP) * (hit.limit or 0.0)
                yield replace(hit, severity="note") if cheap or has_passed or small else hit


def _settled(series: Series, rows: Steps, min_share: float) -> Steps:
    """Return the rows of a session, without the first where the second has less than `min_share` of its throughput."""
    values = series.values[rows[:2], 0]
    return rows[1:] if len(values) > 1 and values[1] < min_share * values[0] else rows


def _lost_seconds(hit: Hit, time: Series | None) -> float:
    """Return by how many seconds the steps of a fall took longer than before it; infinite where steps have no times."""
    seconds = None if hit.first is None or hit.last is None else seconds_between(time, hit.first, hit.last)
    return np.inf if seconds is None or not hit.limit else seconds * (1 - (hit.value or 0.0) / hit.limit)


def _lost_share(hit: Hit, points: int) -> float:
    """Return the share of a session's work that a fall cost at most: that of its points, at its lowest level."""
    return (hit.points or 0) / points * (1 - (hit.value or 0.0) / hit.limit) if hit.limit else 1.0


def _is_made_of_clock(speed: Series | None, time: Series | None, tokens: Series | None, drop: float) -> bool:
    """Tell whether tokens per second say no more than the step time, because tokens per step are constant."""
    if time is None or tokens is not None or speed is None:
        return time is not None and tokens is not None
    per_step = (speed.values * at(time, speed.steps).values)[:, 0]
    per_step = per_step[np.isfinite(per_step)]
    third = len(per_step) // 3
    return third > 0 and median(per_step[-third:]) > (1 - drop) * median(per_step[:third])


def _falls(series: Series, rows: Steps, drop: float, alone: float, collapse: float, k: float, lasting: int) -> Iterator[Hit]:
    """Yield where one session's throughput falls; `rows` are its known ones."""
    values = series.values[rows, 0]
    first = values[: max(2, len(values) // 3)]
    usual = median(first)
    spread = max(k * MAD_TO_SIGMA * median(np.abs(first - usual)), 3 * difference_noise(values))
    inside = np.zeros(series.values.shape, bool)
    inside[rows] = True
    low = (series.values < usual - max(drop * usual, spread)) & inside
    falls = [(span.rows, usual) for span in spans(series, low, min_points=lasting)] if len(rows) >= 2 * lasting else []
    if (
        not falls
        and (turn := lasting_fall(values, share=drop, share_alone=alone)) is not None
        and _is_level(values, turn.first, lasting)
    ):
        falls = [(rows[turn.first :], median(values[: max(1, turn.first)]))]
    for place, before in falls:
        last = series.values[place, 0]
        end = median(last[-max(1, len(last) // 6) :])
        begin = max(before, median(values[: max(1, len(values) // 8)]))  # a slide has left its first level long before
        yield Hit.at(
            series.steps[place],
            "sev1" if end < collapse * begin else "sev2",
            series.name + " falls to {value:.4g}, from {limit:.4g}",
            where=series.labels[0],
            value=float(last.min()),
            limit=begin,
            worst=int(np.argmin(last)),
        )


def _is_level(values: Floats, turn: int, lasting: int) -> bool:
    """Tell whether the medians before and after a row differ by three standard errors, where points enough tell the noise."""
    before, after = values[:turn], values[turn:]
    if len(values) < ENOUGH_FOR_NOISE:
        return True
    error = difference_noise(values) * float(np.sqrt(1 / len(before) + 1 / len(after)))
    return len(after) >= lasting and median(before) - median(after) > 3 * error
