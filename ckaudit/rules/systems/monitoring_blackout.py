"""SYS003: the training goes on, or hangs, and nothing is logged."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.speed import log_silence
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.run_facts import resume_steps
from ckaudit.run.series import Series


@rule("SYS003", severity="sev0", needs=[log_silence], wants=[FACTS], unit="s")
def monitoring_blackout(
    silence: Series,
    facts: Manifest | None,
    *,
    min_seconds: float = 1800.0,
    min_ratio: float = 50.0,
    min_lost_lines: float = 10.0,
    min_points: int = 10,
) -> Iterator[Hit | Skip]:
    """The training goes on, or hangs, and nothing is logged.

    ## What it checks
    The time between two lines of the log, restarts left out, where it is longer than `min_seconds` seconds and than `min_ratio`
    times the usual time. If the steps went on meanwhile, by `min_lost_lines` times the usual number or more without a line, the
    monitoring was blind (SEV0-3); if they did not, the training hung: sev1.
    ## Why it matters
    Nobody sees what happens in between, and what happens to machines often does both: it hangs the training and hides it.
    ## False alarms
    Evaluations and checkpoints take minutes; a stop between two sessions that run.json lists is left out. Fewer than `min_points`
    lines tell nothing of what is usual.
    """
    yield from too_few(silence, min_points)
    if silence.points < min_points:
        return
    values = silence.values[:, 0]
    gaps = np.diff(silence.steps, prepend=silence.steps[0] - 1)
    usual, stride = median(values[~np.isnan(values)]), median(gaps)
    resumed = np.zeros(len(values), bool)
    for seam in resume_steps(facts):
        resumed |= (silence.steps > seam) & (silence.steps - gaps <= seam)
    for row in map(int, np.flatnonzero((values > max(min_seconds, min_ratio * usual)) & ~resumed)):
        blind = gaps[row] >= min_lost_lines * stride
        step, before = int(silence.steps[row]), int(silence.steps[row] - gaps[row])
        yield Hit(
            severity="sev0" if blind else "sev1",
            where="log",
            first=before,
            last=step,
            worst=step,
            value=float(values[row]),
            limit=max(min_seconds, min_ratio * usual),
            points=1,
            message=f"{gaps[row]} steps without a line in {{value:.0f}} s, from step {before} on: the monitoring was blind"
            if blind
            else f"no step for {{value:.0f}} s after step {before}: the training hung",
        )
