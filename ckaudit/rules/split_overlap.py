"""DATA005: what is held out is in the training set too."""

from collections.abc import Iterator

from ckaudit.metrics.corpus import train_val_overlap
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("DATA005", severity="sev1", needs=[train_val_overlap], unit="%", memory=1)
def split_overlap(overlap: Series, *, budget: float = 4.0, leak: float = 20.0) -> Iterator[Hit | Skip]:
    """What is held out is in the training set too.

    ## What it checks
    The share of held-out documents with a near duplicate in the training data (M37). Above `budget` percent, what standard
    sets were found to have (Lee et al. 2022), it is sev2; above `leak` the held-out set measures memory: sev1.
    ## Why it matters
    The validation loss is then partly a training loss, and every decision made by it is too optimistic.
    ## False alarms
    Short texts repeat by chance: headers, licences, greetings.
    """
    high = overlap.values > leak
    for span in spans(overlap, high):
        yield Hit.over(
            span, "sev1", "{value:.3g} % of what is held out is in the training data: the evaluation measures memory",
            badness=overlap.values, limit=leak,
        )  # fmt: skip
    for span in spans(overlap, (overlap.values > budget) & ~high):
        yield Hit.over(
            span, "sev2", "{value:.3g} % of what is held out has a near duplicate in the training data, above {limit:.3g} %",
            badness=overlap.values, limit=budget,
        )  # fmt: skip
