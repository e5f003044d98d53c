"""GRAD011: long updates that are made of a few rows."""

from collections.abc import Iterator

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.progress import tokens_per_update
from ckaudit.metrics.weights import update_to_weight_global
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.robust import typical_move
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule(
    "GRAD011",
    severity="sev2",
    needs=[tokens_per_update, update_to_weight_global, train_loss_raw, FACTS],
    facts=[["sequence_length"]],
    unit="1",
)
def gradient_noise_too_high(
    tokens: Series,
    ratio: Series,
    loss: Series,
    facts: Manifest,
    *,
    min_rows: float = 4.0,
    max_loss_jitter: float = 0.05,
    calm_update: float = 0.0035,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """Updates are as long as those of a large batch, and are made of a few rows.

    ## What it checks
    The rows of an update are its tokens (M08) over the sequence length in run.json. Long updates that are made of few rows are a
    finding where all of these hold:

    - An update has fewer than `min_rows` rows.
    - The loss jumps by more than `max_loss_jitter` of itself from one step to the next, by the median of the second half.
    - The norm of an update over that of all weights (M11) exceeds `calm_update` times the root of the rows: `calm_update` is the
      limit for one row.
    - The norm exceeds that limit at `min_points` points in a row.
    ## Why it matters
    A gradient of few rows is mostly noise, which falls only with the root of the rows (McCandlish et al. 2018). Adam's step is as
    long from noise as from a gradient: most of the way is a random walk, and each update teaches what a few rows can.
    ## False alarms
    Few rows are no illness by themselves:

    - Batches of one row are common where a model is fine-tuned, and there it moves little.
    - From scratch, in the lab, rates that fit four rows give 0.002 for one row; those of a batch of 32, used on a row or two,
      give 0.005 to 0.009.
    - A row of thousands of tokens is a mean already: its loss does not jump.
    """
    if not facts.sequence_length:
        yield Skip("not_recorded", "needs sequence_length")
        return
    yield from too_few(ratio, min_points)
    counts = tokens.values[tokens.finite]
    rows = median(counts) / facts.sequence_length if counts.size else min_rows
    if rows >= min_rows or (jump := typical_jump(loss)) is None or jump <= max_loss_jitter:
        return
    limit, batch = calm_update * rows**0.5, "a single sequence" if rows <= 1 else f"{rows:.2g} sequences"
    for span in spans(ratio, ratio.values > limit, min_points=min_points):
        yield Hit.over(
            span,
            "sev2",
            f"an update is made of {batch} and changes up to {{value:.2g}} of the weights; the loss jumps by "
            f"{jump:.0%} from one step to the next",
            badness=ratio.values,
            limit=limit,
        )


def typical_jump(loss: Series, *, min_points: int = 10) -> float | None:
    """Return the median change of the loss between points in the second half, over its median there; None with too few points."""
    values = loss.values[loss.finite]
    late = values[len(values) // 2 :]
    if len(late) < min_points or median(late) <= 0:
        return None
    return typical_move(late) / median(late)
