"""EVAL001: files that an evaluation rests on have changed."""

from collections.abc import Iterator

from ckaudit.metrics.evaluation import eval_artifact_hash
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("EVAL001", severity="sev2", needs=[eval_artifact_hash], unit="1", memory=1)
def evaluation_artifact_changed(same: Series, *, equal: float = 1.0) -> Iterator[Hit | Skip]:
    """Files that an evaluation rests on have changed.

    ## What it checks
    The hash of every artifact at every evaluation against the one that run.json names, else the first: anything below
    `equal` is another file (M59, SR-1).
    ## Why it matters
    Scores on both sides of the change do not compare: a regression, or a gain, may be of the harness alone.
    ## False alarms
    None: the same bytes have the same hash. A change that was meant needs a new run of the older checkpoints.
    """
    for span in spans(same, same.values < equal):
        yield Hit.over(
            span, "sev2", "{where} is not the artifact of the earlier evaluations: scores before and after do not compare",
            badness=-same.values, value=same.values, limit=equal,
        )  # fmt: skip
