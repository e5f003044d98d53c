"""ATTN004: heads of a layer do the same."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.report import Severity
from ckaudit.metrics.attention import normalized_attention_entropy
from ckaudit.metrics.heads import head_similarity
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Mask, Series, at, single
from ckaudit.run.spans import spans


@rule("ATTN004", severity="sev2", needs=[head_similarity, normalized_attention_entropy], unit="1")
def redundant_heads(
    similarity: Series, entropy: Series, *,
    alike: float = 0.9, copies: float = 0.999, chosen: float = 0.9, most: float = 0.5, min_points: int = 3,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """Heads of a layer do the same.

    ## What it checks
    The cosine of each head's attention to the most similar other head of its layer, of heads that are choosy at all: with
    a normalized entropy below `chosen`, for even heads are all alike. More than `most` of them over `alike` at
    `min_points` checkpoints in a row is a note (D3.2); over `copies` it is sev2, for then they are copies of one.
    ## Why it matters
    Copies get the same gradient and stay copies: the layer has fewer heads than were paid for.
    ## False alarms
    Several heads that look at the previous token are common: they are similar, not equal.
    """
    yield from too_few(similarity, min_points)
    judged = similarity.finite & _choosy(similarity, entropy, chosen)
    told = np.zeros(len(similarity.steps), bool)
    for limit, severity in ((copies, "sev2"), (alike, "note")):
        share = _share(similarity, judged, limit)
        for span in spans(share, (share.values > most) & ~told[:, None], min_points=min_points):
            told[span.rows] = True
            grave: Severity = "sev2" if severity == "sev2" else "note"
            yield Hit.over(
                span, grave, "{value:.0%} of the heads that choose are like another one of their layer; the limit is {limit:.0%}",
                badness=share.values, limit=most,
            )  # fmt: skip


def _choosy(similarity: Series, entropy: Series, chosen: float) -> Mask:
    found = at(entropy, similarity.steps)
    choosy = np.zeros(similarity.values.shape, bool)
    for column, label in enumerate(similarity.labels):
        if label in entropy.labels:
            place = entropy.labels.index(label)
            choosy[:, column] = (found.values[:, place] < chosen) & (found.age[:, place] == 0)
    return choosy


def _share(similarity: Series, judged: Mask, limit: float, *, least: int = 4) -> Series:
    """Return the share of the judged heads over a limit, where there are `least` of them."""
    count = judged.sum(axis=1)
    with np.errstate(all="ignore"):
        return single(
            "attention", "1", similarity.steps, ((similarity.values > limit) & judged).sum(axis=1) / count, count >= least
        )
