"""RESUME001: the loss differs on the two sides of a resume."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.after_resume import loss_after_resume
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.run_facts import resume_steps
from ckaudit.run.series import Series


@rule("RESUME001", severity="sev2", needs=[train_loss_raw, FACTS], wants=[loss_after_resume], unit="nats/token")
def seam_jump(
    loss: Series,
    facts: Manifest,
    above: Series | None,
    *,
    max_errors: float = 8.0,
    points_after: int = 3,
    min_loss_share: float = 0.01,
) -> Iterator[Hit | Skip]:
    """The loss differs on the two sides of a resume.

    ## What it checks
    The mean of the first `points_after` losses after a resume, against the line through the losses before it. The training did
    not go on where it had stopped if that mean meets both conditions:

    - The mean lies more than `max_errors` standard errors above the line. In the lab's dev split clean resumes give -0.3 to 2.4;
      a lost optimizer state or wrong weights give 14 to 61.
    - The mean exceeds the median of the last ten losses before the resume by more than `min_loss_share` of that median.
    ## Why it matters
    Weights, optimizer, learning rate or data are not what they were: from here on it is another run.
    ## False alarms
    A first batch that is hard by chance is averaged with the batches after it. A loss that is lower after a resume is no jump.
    """
    borders = resume_steps(facts)
    if not borders:
        yield Skip("not_applicable", "the run was not taken up again")
        return
    if above is None:
        yield Skip("too_few_points", "fewer than ten losses before each resume")
        return
    for seam, later in zip(borders, [*borders[1:], None], strict=True):
        rows = np.flatnonzero((above.steps > seam) & (above.steps <= (np.inf if later is None else later)))[:points_after]
        if not len(rows):
            continue
        error = float(above.values[rows, 0].mean() * np.sqrt(len(rows)))
        steps = above.steps[rows]
        reached = loss.values[np.searchsorted(loss.steps, steps), 0]
        before = loss.values[(loss.steps <= seam) & loss.finite[:, 0], 0][-10:]
        usual = median(before)
        if error > max_errors and float(reached.mean()) - usual > min_loss_share * abs(usual):
            worst = int(np.argmax(reached))
            yield Hit.at(
                steps,
                "sev2",
                f"after the resume from step {seam} the loss is {{value:.4g}}, before it {{limit:.4g}}",
                where="loss",
                value=float(reached[worst]),
                limit=usual,
                worst=worst,
            )
