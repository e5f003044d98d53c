"""EVL005: the model trains in evaluation mode."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.evaluation import train_in_eval_mode
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series


@rule("EVL005", severity="sev2", needs=[train_in_eval_mode], wants=[FACTS], unit="1")
def trained_in_evaluation_mode(mode: Series, facts: Manifest | None, *, min_steps: int = 3) -> Iterator[Hit | Skip]:
    """The model trains in evaluation mode.

    ## What it checks
    The rule counts steps whose passes with gradients were all made in evaluation mode, by the model as a whole and by each part
    to which the mode makes a difference. One of these holds:

    - At least `min_steps` such steps come after a step in training mode.
    - All steps are such steps, and batch norm had no statistics when the recording began: it normalizes by a mean of 0 and a
      variance of 1 for good.
    ## Why it matters
    Dropout is off, so the model learns by heart. Batch norm uses the statistics of another model: the one at the time when the
    mode was switched.
    ## False alarms
    Somebody may have asked for it. A model that was trained before, and is trained on in evaluation mode from the first step on,
    is not reported, nor is a part that is kept in evaluation mode by itself, as frozen batch norm.
    """
    known = mode.finite[:, 0]
    steps, is_wrong = mode.steps[known], mode.values[known, 0] > 0
    if not is_wrong.any():
        return
    if is_wrong.all():
        if facts is None or facts.batch_norm_batches != 0:
            yield Skip("not_applicable", "it trains in evaluation mode from the first step on: taken to be meant")
            return
        message = "all {count} steps were trained in evaluation mode: batch norm never took statistics, and normalizes nothing"
    else:
        is_wrong &= np.cumsum(~is_wrong) > 0
        message = "{count} steps from step {first} on were trained in evaluation mode: no model.train() after an evaluation"
    wrong = steps[is_wrong]
    if len(wrong) < min_steps:
        return
    yield Hit.at(wrong, "sev2", message.format(count=len(wrong), first=wrong[0]), where=mode.labels[0], value=1.0, limit=0.0)
