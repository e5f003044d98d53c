"""GRAD001: the gradient shrinks on its way back to the early blocks."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import block_gradient_norm
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import last_beside


@rule("GRAD001", severity="sev2", needs=[block_gradient_norm], unit="1", memory=1)
def vanishing_gradient(
    norm: Series, *, note_ratio: float = 10.0, max_ratio: float = 100.0, born_ratio: float = 20.0, young: int = 20
) -> Iterator[Hit | Skip]:
    """The gradient shrinks on its way back to a block.

    ## What it checks
    The last block's gradient norm over each block's own, at each checkpoint. Up to `note_ratio` is ordinary (playbook D1.2);
    from `max_ratio` the block is starved (playbook D4.2). More than ordinary at the first two checkpoints, and more than
    `born_ratio` within the first `young` steps is sev2: no training has made it, the model is built so (residual
    models of the lab begin below 2, an embedding below a plain stack of layers at 13).
    ## Why it matters
    A block fed a hundred times less gradient than the last one barely trains, while the loss still falls.
    ## False alarms
    Embedding, head and final norm are no blocks and stand apart, and an encoder ends in a last block
    of its own. A model of one block has no depth to lose gradient in.
    """
    if len(norm.labels) < 2:
        yield Skip("not_applicable", "the model has fewer than two blocks")
        return
    with np.errstate(all="ignore"):
        ratio = norm.values[:, last_beside(norm.labels)] / norm.values  # (T, L)
    for span in spans(norm, ratio > max_ratio):
        none = np.isinf(ratio[span.rows, span.column]).any()
        less = "no gradient at all, and the last block does" if none else "{value:.3g}x less gradient than the last block"
        yield Hit.over(span, "sev2", f"{{where}} gets {less}; the limit is {{limit:.0f}}x", badness=ratio, limit=max_ratio)
    for span in spans(norm, (ratio > note_ratio) & (ratio <= max_ratio)):
        begun = norm.steps[span.rows] <= young
        born = span.rows[0] == 0 and span.points > 1 and bool((ratio[span.rows, span.column] > born_ratio)[begun].any())
        yield Hit.over(
            span, "sev2" if born else "note",
            "{where} gets {value:.3g}x less gradient than the last block" + (" from the first step on" if born else "")
            + "; within {limit:.0f}x is ordinary",
            badness=ratio, limit=note_ratio,
        )  # fmt: skip
