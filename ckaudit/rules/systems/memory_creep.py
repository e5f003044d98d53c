"""SYS005: device memory grows all the time."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.hardware import gpu_mem_used
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@rule("SYS005", severity="sev2", needs=[gpu_mem_used], unit="bytes")
def memory_creep(
    used: Series,
    *,
    min_growth: float = 0.08,
    parts: int = 4,
    min_points: int = 3,
    warmup_share: float = 0.2,
    min_stair: float = 0.005,
) -> Iterator[Hit | Skip]:
    """Device memory grows all the time.

    ## What it checks
    The memory in use after the first `warmup_share` of the points (M43: creep to near its end), in medians of `parts` equal
    pieces of the run, or of as many as there are points. Memory creeps where all of these hold:

    - The medians rise from each piece to the next by `min_stair` of themselves, in all pieces but one.
    - The medians fall nowhere.
    - The medians rise by `min_growth` in all, which is what a device that is filled to nine tenths has left.
    ## Why it matters
    Something is kept from step to step; the run ends out of memory, at night.
    ## False alarms
    Allocators grow at first and then stay. A single stair, as by longer rows, does not rise in every piece. Fewer than
    `min_points` points tell nothing.
    """
    if used.points < min_points:
        yield Skip("too_few_points", f"{used.points} points of gpu_mem_used; {min_points} are needed")
        return
    for column, label in enumerate(used.labels):
        rows = np.flatnonzero(used.finite_in(column))
        rows = rows[max(1, int(warmup_share * len(rows))) :]
        if len(rows) < 2:
            continue
        middles = np.array([median(piece) for piece in np.array_split(used.values[rows, column], min(parts, len(rows)))])
        rises = np.diff(middles) / middles[:-1]
        flat = int((rises <= min_stair).sum())
        if flat <= (len(rises) > 2) and (rises >= 0).all() and middles[-1] > (1 + min_growth) * middles[0]:
            yield Hit.at(
                used.steps[rows],
                "sev2",
                f"the memory in use grows all the time, from {middles[0] / 1e9:.3g} to {middles[-1] / 1e9:.3g} GB",
                where=label,
                value=float(middles[-1]),
                limit=float(middles[0]),
                worst=-1,
            )
