"""OPT001: trainable tensors are in no parameter group."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.movement import updated_by_another_optimizer
from ckaudit.metrics.weights import relative_movement, update_norm
from ckaudit.metrics.words import tensors_without_optimizer
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("OPT001", severity="sev1", needs=[tensors_without_optimizer], wants=[update_norm, relative_movement], unit="1")
def missing_in_optimizer(
    missing: Series, update: Series | None, moved: Series | None, *, min_share: float = 0.5
) -> Iterator[Hit | Skip]:
    """Trainable tensors are in no parameter group.

    ## What it checks
    The tensors that ask for a gradient but that no group of the optimizer holds: the recorder compares the two lists. A tensor is
    missing where more than `min_share` of it is in no group, which stands for all of it.
    ## Why it matters
    Such tensors keep their initial values for the whole run, and the loss may look healthy.
    ## False alarms
    A second optimizer, which the recorder was not given, may hold them: tensors that move are left out. Tensors that are to stand
    still should not ask for a gradient.
    """
    tensors = missing.only(lambda label: label != missing.name)
    still = tensors.values > min_share
    if update is not None:
        moves = np.any(np.nan_to_num(update.values) > 0, axis=0)
        movers = {label for label, is_moving in zip(update.labels, moves, strict=True) if is_moving}
        movers |= updated_by_another_optimizer(update, moved)
        still &= np.array([label not in movers for label in tensors.labels], bool)
    for span in spans(tensors, still):
        yield Hit.over(
            span,
            "sev1",
            "{where} is trainable, but no parameter group of the optimizer holds it",
            badness=tensors.values,
            limit=min_share,
        )
