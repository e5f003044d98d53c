"""LOSS011: one of several loss functions is not learnt, beside others that are."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss_function import LEARNT_SHARE, MAX_UNEXPLAINED, loss_term_explained_share
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.run_facts import why_loss_need_not_fall
from ckaudit.run.series import Floats, Series


@rule("LOSS011", severity="sev2", needs=[loss_term_explained_share], wants=[FACTS], unit="1")
def loss_term_not_learnt(
    saved: Series, facts: Manifest | None, *, min_steps: int = 200, min_checkpoints: int = 4
) -> Iterator[Hit | Skip]:
    """One of several loss functions is not learnt, beside others that are.

    ## What it checks
    Each loss function that a step calls, against what a constant guess costs on its targets: in the second half of the record,
    from `min_checkpoints` there and `min_steps` on, it saves less than two parts in a hundred of that, its own noise included,
    while another saves a tenth. Functions that are called with as many classes, or numbers, count as one.
    ## Why it matters
    The sum of all hides it: the largest term falls, and takes what clipping leaves of the gradient. What the small one is to
    teach, as the class beside the box, is not learnt at all.
    ## False alarms
    A task that cannot be told from its inputs is none either, nor one that has just been switched on. Losses that play against
    each other, and those of a policy, are not judged: there a constant may be the best answer.
    """
    if undirected := why_loss_need_not_fall(facts):
        yield Skip("not_applicable", undirected)
        return
    rows = saved.recorded_rows()
    late = rows.steps > rows.steps[-1] / 2
    if late.sum() < min_checkpoints or rows.steps[-1] < min_steps:
        message = f"{int(late.sum())} checkpoints in the second half of {int(rows.steps[-1])} steps; {min_checkpoints} are needed"
        yield Skip("too_few_points", f"{message}, and {min_steps} steps")
        return
    shares = [rows.values[late & np.isfinite(rows.values[:, column]), column] for column in range(len(rows.labels))]
    learnt = {label: median(share) for label, share in zip(rows.labels, shares, strict=True) if len(share) >= min_checkpoints}
    best = max(learnt, key=learnt.__getitem__, default=None)
    if best is None or learnt[best] < LEARNT_SHARE:
        return
    for label, share in zip(rows.labels, shares, strict=True):
        if label in learnt and _largest_likely(share) < MAX_UNEXPLAINED:
            yield Hit.at(
                rows.steps[late],
                "sev2",
                f"{{where}} saves {{value:.1%}} of what a constant guess costs on its targets, where {best} saves "
                f"{learnt[best]:.0%}: this part of the loss is not learnt",
                where=label,
                value=learnt[label],
                limit=MAX_UNEXPLAINED,
                worst=int(np.argmin(share)),
            )


def _largest_likely(share: Floats) -> float:
    """Return the median of some shares, and two of its standard errors."""
    return median(share) + 2 * float(np.std(share, ddof=1)) / float(np.sqrt(len(share)))
