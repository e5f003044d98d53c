"""SYS005: device memory grows all the time."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.hardware import gpu_mem_used
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series


@rule("SYS005", severity="sev2", needs=[gpu_mem_used], unit="bytes")
def memory_creep(
    used: Series, *, growth: float = 0.2, parts: int = 5, min_points: int = 20, warmup: float = 0.1
) -> Iterator[Hit | Skip]:
    """Device memory grows all the time.

    ## What it checks
    The memory in use after the first `warmup` of the points (M43: creep to near its end): the medians of `parts` equal pieces of
    the run rise from each to the next, by `growth` in all.
    ## Why it matters
    Something is kept from step to step; the run ends out of memory, at night.
    ## False alarms
    Allocators grow at first and then stay; a single stair, as by longer rows, does not rise in every piece. At least
    `min_points` points are needed.
    """
    if used.points < min_points:
        yield Skip("too_few_points", f"{used.points} points of gpu_mem_used; {min_points} are needed")
        return
    for column, label in enumerate(used.labels):
        rows = np.flatnonzero(used.finite_in(column))
        rows = rows[int(warmup * len(rows)) :]
        if len(rows) < parts:
            continue
        pieces = np.array_split(used.values[rows, column], parts)
        middles = np.array([np.median(piece) for piece in pieces])
        if (np.diff(middles) > 0).all() and middles[-1] > (1 + growth) * middles[0]:
            yield Hit(
                severity="sev2", where=label, first=int(used.steps[rows[0]]), last=int(used.steps[rows[-1]]),
                worst=int(used.steps[rows[-1]]), value=float(middles[-1]), limit=float(middles[0]), points=len(rows),
                message="the memory in use grows all the time, from {limit:.3g} to {value:.3g} bytes",
            )  # fmt: skip
