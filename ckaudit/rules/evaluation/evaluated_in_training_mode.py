"""EVL004: evaluations run in training mode."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.evaluation import eval_in_training_mode
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series


@rule("EVL004", severity="sev2", needs=[eval_in_training_mode], wants=[train_loss_raw], unit="1")
def evaluated_in_training_mode(
    share: Series, loss: Series | None, *, min_points: int = 2, max_step_share: float = 0.5
) -> Iterator[Hit | Skip]:
    """Evaluations run in training mode.

    ## What it checks
    The rule counts passes without gradients in which dropout was on, or batch norm took the statistics of its batch.

    - Such passes in at least `min_points` evaluations are no slip: sev2.
    - Where such passes come in more than `max_step_share` of the steps from then on, they are part of the training itself, as
      where a model makes its own targets, and are not judged.
    ## Why it matters
    Validation losses are too high by what dropout costs, and as noisy as the units dropped. Batch norm even learns from the
    held-out set. No two checkpoints can be compared, and the best of them is chosen by chance.
    ## False alarms
    Somebody may have asked for it: dropout kept on to tell how sure a model is (Monte Carlo dropout), new statistics for batch
    norm, generation while the model trains. Only calls of the watched model itself are seen, and only under `torch.no_grad` or
    `torch.inference_mode`.
    """
    steps, values = share.finite_points()
    bad = values > 0
    if bad.sum() < min_points:
        return
    first, last = int(steps[bad][0]), int(steps[bad][-1])
    taken = 0 if loss is None else int((loss.steps >= first).sum())
    if bad.sum() - 1 > max_step_share * (taken - 1) > 0:
        yield Skip(
            "not_applicable",
            f"{bad.sum()} of {taken} steps make passes without gradients in training mode: the training itself does this",
        )
        return
    worst = int(np.argmax(values))
    yield Hit(
        severity="sev2",
        where=share.labels[0],
        first=first,
        last=last,
        worst=int(steps[worst]),
        value=float(values[worst]),
        limit=0.0,
        points=int(bad.sum()),
        message=f"{bad.sum()} evaluations ran in training mode, with dropout on or batch norm learning: right only where that "
        "was asked for",
    )
