"""GUES001: the model is worse than guessing."""

from collections.abc import Iterator

from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit_guessing.metrics import loss_over_guessing


@rule("GUES001", severity="sev2", needs=[loss_over_guessing], unit="1", memory=1)
def worse_than_guessing(ratio: Series, *, limit: float = 1.5, points: int = 10) -> Iterator[Hit | Skip]:
    """The loss lies above that of guessing.

    ## What it checks
    The training loss over the logarithm of the vocabulary, from `points` recorded points on: above `limit` the model is
    confidently wrong, which takes training. The limit is a starting value: at its start a model is within 10 % of guessing.
    ## Why it matters
    Such a model has learned something that is not in the text.
    ## False alarms
    A badly scaled head starts above the limit; it is back after a few steps.
    """
    if ratio.points < points:
        yield from too_few(ratio, points)
        return
    for span in spans(ratio, ratio.values > limit):
        yield Hit.over(
            span,
            "sev2",
            "the loss is {value:.3g}x that of guessing; the limit is {limit:.2g}x",
            badness=ratio.values,
            limit=limit,
        )
