"""SLIC002: tau leaves the course that it takes while exceptions are being learnt."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.slice_gap import tau
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Floats, Series, Steps
from ckaudit.run.tensors import loss_kind_of

UNTRAINED_STEPS = 10
"""Steps in which a model is as good as untrained (playbook D1.1)."""
MIN_COURSE_STEPS = 1_000
"""Steps after which the end of tau's course can be judged: twice the step near which tau is widest."""


@rule("SLIC002", severity="sev2", needs=[tau], wants=[FACTS], unit="nats/token")
def slice_gap_off(
    gap: Series,
    facts: Manifest | None,
    *,
    max_start: float = 0.25,
    max_level: float = 1.0,
    max_end: float = 0.5,
    min_end: float = 0.05,
    margin: float = 0.1,
) -> Iterator[Hit | Skip]:
    """The hard slice costs more, or less, against the easy one than it should.

    ## What it checks
    Tau is the loss of the hard slice less that of the easy one. Its course is about 0 at first, 0.5 to 1.0 nats near step 500,
    and 0.2 to 0.5 at the end (F14, DR-3).

    - At a first evaluation within ten steps, a tau of more than `max_start` nats either way is a note: an untrained model knows
      neither slice.
    - At any later time, a level above `max_level` is worrying: sev2.
    - A run of a thousand steps or more whose tau stays above `max_end` has not narrowed: a note.
    - A run of a thousand steps or more whose tau had come to `max_end` and ends below `min_end` has learnt the exceptions by
      heart: a note.
    - The bounds `max_level` and `max_end` are widened by `margin` of themselves, a tenth, for a slice is small and noisy.
    - A level is the median of three evaluations; with fewer than eight, each evaluation itself.
    ## Why it matters
    Tau tells apart a model that learns rules, one that learns them and then the exceptions, and one that recites.
    ## False alarms
    A tau below the band is no finding: a small or a well mixed corpus never reaches it. Where two slices of one's own choice
    differ by nature, name other slices, or give this rule its own bounds in the policy.
    """
    if loss_kind_of(facts) == "other":
        yield Skip("not_applicable", "the loss is not in nats per token")
        return
    steps, values = gap.finite_points()
    if not len(steps) or (len(steps) > 2 and not np.ptp(values)):
        yield Skip("too_few_points", "no two evaluations differ in tau" if len(steps) else "no evaluation has a finite tau")
        return
    level = _level(values)
    if steps[0] <= UNTRAINED_STEPS and abs(values[0]) > max_start:
        yield _hit(
            "note",
            steps[:1],
            values[:1],
            max_start,
            "at the start tau is {value:.3g} nats, off the expected 0 (limit {limit:g}): an untrained model knows neither slice",
        )
    later = steps > UNTRAINED_STEPS
    if (wide := later & (level > max_level * (1 + margin))).any():
        yield _worrying(steps, level, wide, max_level)
    elif steps[-1] >= MIN_COURSE_STEPS:
        yield from _at_end(steps, level, max_end, min_end, margin)


def _at_end(steps: Steps, level: Floats, max_end: float, min_end: float, margin: float) -> Iterator[Hit]:
    """Yield a note where tau has not narrowed at the end of a long run, or has fallen to about zero."""
    if level[-1] > max_end * (1 + margin):
        since = _last_stretch(level > max_end * (1 + margin))
        yield _hit(
            "note",
            steps[since:],
            level[since:],
            max_end,
            "at the end tau is still {value:.3g} nats, above the expected 0.2 to {limit:g}: the gap has not narrowed",
        )
    elif level.max() >= max_end and level[-1] < min_end:
        since = _last_stretch(level < min_end)
        yield _hit(
            "note",
            steps[since:],
            level[since:],
            min_end,
            "at the end tau is back at {value:.3g} nats, below the expected 0.2 to 0.5: the exceptions are memorised",
        )


def _worrying(steps: Steps, level: Floats, wide: np.ndarray, peak: float, *, half: int = 500) -> Hit:
    """Return the hit of a gap that is too wide, with the part of its course in which it is widest."""
    rows = np.flatnonzero(wide)
    widest = int(rows[np.argmax(level[rows])])
    step = int(steps[widest])
    if step > 1.5 * half:
        part = "at the end" if step >= 0.9 * steps[-1] else f"at step {step}"
    else:
        part = f"near step {half}" if step >= half / 1.5 else "early in the run"
    return Hit.at(
        steps[rows],
        "sev2",
        f"{part} tau is {{value:.3g}} nats, above the expected 0.5 to {{limit:g}}: worrying",
        where="tau",
        value=float(level[widest]),
        limit=peak,
        worst=int(np.argmax(level[rows])),
    )


def _hit(severity: Severity, steps: Steps, values: Floats, limit: float, message: str) -> Hit:
    return Hit.at(steps, severity, message, where="tau", value=float(values[-1]), limit=limit, worst=-1)


def _level(values: Floats) -> Floats:
    """Return running medians of three, the outermost repeated at both ends; fewer than eight values are returned as they are."""
    if len(values) < 8:
        return values
    middle = running_medians(values, 3)
    return np.concatenate([middle[:1], middle, middle[-1:]])


def _last_stretch(mask: np.ndarray) -> int:
    """Return the first row of the last stretch of true values, which reaches the end."""
    broken = np.flatnonzero(~mask)
    return int(broken[-1]) + 1 if len(broken) else 0
