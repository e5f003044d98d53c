"""RANK002: ranks hold different weights."""

from collections.abc import Iterator

from ckaudit.metrics.words import replica_agreement
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("RANK002", severity="sev0", needs=[replica_agreement], unit="1", memory=1)
def rank_divergence(agreement: Series, *, full_agreement: float = 1.0) -> Iterator[Hit | Skip]:
    """Ranks hold different weights.

    ## What it checks
    Whether all ranks hash the same parameters, among those that every rank holds whole. Ranks have diverged where their agreement
    is below `full_agreement`.
    ## Why it matters
    Replicas that differ average gradients of different models, and it is chance which of them is saved (BLOOM's norms drifted
    apart where one rank clipped alone).
    ## False alarms
    Sharded parameters are not hashed. Sums taken in another order do not change a hash: each rank adds the same gradient.
    """
    for span in spans(agreement, agreement.values < full_agreement):
        yield Hit.over(
            span,
            "sev0",
            "only {value:.0%} of the ranks hold the same weights: the replicas have diverged",
            badness=-agreement.values,
            value=agreement.values,
            limit=full_agreement,
        )
