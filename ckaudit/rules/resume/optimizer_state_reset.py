"""RESUME002: the optimizer forgets what it knew."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.after_resume import loss_after_resume
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.run_facts import later_sessions, resume_steps
from ckaudit.run.series import Series, at


@rule("RESUME002", severity="sev1", needs=[train_loss_raw, FACTS], wants=[loss_after_resume, learning_rate], unit="nats/token")
def optimizer_state_reset(
    loss: Series,
    facts: Manifest,
    above: Series | None,
    rate: Series | None,
    *,
    max_first_deviations: float = 6.0,
    min_later_deviations: float = 12.0,
    min_ratio: float = 3.0,
    max_rate_change: float = 0.2,
) -> Iterator[Hit | Skip]:
    """The optimizer forgets what it knew.

    ## What it checks
    Whether an optimizer that keeps state held some before its first update after a resume. Where the recorder did not look, the
    losses tell; the first loss after a resume is that of the loaded weights, before any update. The state was lost where all of
    these hold:

    - The first loss after the resume lies within `max_first_deviations` deviations of the line through the losses before it.
    - One of the next losses lies more than `min_later_deviations` deviations above that line, and more than `min_ratio` times as
      far from it as the first.
    - The learning rate changed by less than `max_rate_change` across the resume.
    ## Why it matters
    Moments start from nothing, and Adam's first updates have the size of the learning rate in every element. They throw the
    weights out of their basin, and what the run had learnt since its warm-up is partly lost.
    ## False alarms
    Wrong weights show in the first loss already, and another learning rate in the rate itself: other rules report both. In the
    lab's dev split clean resumes stay below 2.6 deviations; a lost state gives 3.7 and then 37.
    """
    borders = resume_steps(facts)
    if not borders:
        yield Skip("not_applicable", "the run was not taken up again")
        return
    looked = {int(session.resumed_from or 0) for session in later_sessions(facts) if session.optimizer_restored is not UNSET}
    yield from _empty(facts)
    if above is None:
        if len(looked) < len(borders):
            yield Skip("too_few_points", "fewer than ten losses before each resume")
        return
    for seam, later in zip(borders, [*borders[1:], None], strict=True):
        if seam in looked:
            continue
        rows = np.flatnonzero((above.steps > seam) & (above.steps <= (np.inf if later is None else later)))
        if len(rows) < 2 or _rate_changed(rate, seam, int(above.steps[rows[1]]), max_rate_change):
            continue
        first, highest = float(above.values[rows[0], 0]), float(above.values[rows[1:], 0].max())
        if abs(first) <= max_first_deviations and highest > max(min_later_deviations, min_ratio * abs(first)):
            reached = loss.values[np.searchsorted(loss.steps, above.steps[rows]), 0]
            worst = int(np.argmax(reached))
            yield Hit.at(
                above.steps[rows],
                "sev1",
                f"after the resume from step {seam} the loss starts well, at {{limit:.4g}}, and the first updates raise "
                "it to {value:.4g} at the same learning rate: the optimizer's state is not what it was",
                where="loss",
                value=float(reached[worst]),
                limit=float(reached[0]),
                worst=worst,
            )


def _empty(facts: Manifest) -> Iterator[Hit]:
    """Yield the resumes at which the recorder found the optimizer's state empty."""
    for seam in [int(session.resumed_from or 0) for session in later_sessions(facts) if session.optimizer_restored is False]:
        yield Hit.at(
            [seam + 1],
            "sev1",
            f"the optimizer held nothing before its first update after the resume from step {seam}, and does since",
            where="optimizer",
            worst=0,
        )


def _rate_changed(rate: Series | None, seam: int, step: int, same_rate: float) -> bool:
    if rate is None:
        return False
    before, after = at(rate, np.array([seam, step])).values[:, 0]
    return bool(abs(after - before) > same_rate * max(abs(after), abs(before)))
