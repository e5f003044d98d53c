"""MOVE005: the first steps carry the weights further than they were large."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.weights import relative_movement
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of


@rule("MOVE005", severity="sev2", needs=[relative_movement], wants=[FACTS], unit="1")
def initialization_lost(
    moved: Series, facts: Manifest | None, *, max_movement: float = 1.0, first_steps: int = 12, min_matrices: int = 4
) -> Iterator[Hit | Skip]:
    """The first steps carry the weights further than they were large.

    ## What it checks
    How far the matrices have come from where they started, over their initial norm (playbook D2.6), at the first checkpoint
    within `first_steps` steps. The initialization is lost where the median of at least `min_matrices` of them is above
    `max_movement` (lab: healthy runs come to 0.4 in ten steps).
    ## Why it matters
    The scale of the initial weights keeps signals and gradients in range; an optimizer that has seen ten gradients knows no
    better scale. Training often goes on, from a worse start.
    ## False alarms
    Some weights begin small so that they can be lost:

    - Vectors and tensors that start at zero are left out.
    - A model of tables alone, as of users and items, is not judged: its tables keep no signal in range, and their rows are drawn
      small to be lost.
    - Where most of a model is frozen, the matrices beside it are adapters, which begin small so that they can be lost: a note.
    """
    table = table_of(facts)
    matrices = moved.only(lambda name: _is_matrix(name, table))
    if matrices.labels and all(table.kind(name) == "embedding" for name in matrices.labels):
        yield Skip("not_applicable", "the model has tables alone, whose rows are drawn small to be lost")
        return
    rows = np.flatnonzero((matrices.steps > 0) & (matrices.steps <= first_steps) & (matrices.finite.sum(axis=1) >= min_matrices))
    if not len(rows):
        yield Skip("too_few_points", f"no checkpoint of {min_matrices} matrices within the first {first_steps} steps")
        return
    row = int(rows[0])
    shares = matrices.values[row]
    middle = float(np.nanmedian(np.where(matrices.finite[row], shares, np.nan)))
    if middle <= max_movement:
        return
    step = int(matrices.steps[row])
    names = [*table.facts]
    frozen = np.nansum(table.elements([name for name in names if not table.is_trainable(name)]))
    yield Hit(
        severity="note" if frozen > np.nansum(table.elements(names)) / 2 else "sev2",
        where="weights",
        first=step,
        last=step,
        worst=step,
        value=middle,
        limit=max_movement,
        message="after {first} steps the median matrix has moved {value:.3g} times its own initial size",
    )


def _is_matrix(name: str, table: TensorTable) -> bool:
    """Tell whether a tensor has two dimensions or more, as far as that is known."""
    return table.kind(name) != "norm" and not table.is_vector(name)
