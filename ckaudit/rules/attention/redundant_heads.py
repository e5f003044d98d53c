"""ATTN004: heads of a layer do the same."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.metrics.attention import attention_evenness, attn_entropy
from ckaudit.metrics.heads import head_similarity
from ckaudit.metrics.reductions import row_medians
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Mask, Series, at, single
from ckaudit.run.spans import spans

FEW_CHECKPOINTS = 6
"""In a run with fewer checkpoints, two copies in a row are enough."""


@rule("ATTN004", severity="sev2", needs=[head_similarity, attention_evenness], wants=[attn_entropy], unit="1")
def redundant_heads(
    similarity: Series,
    even: Series,
    entropy: Series | None,
    *,
    note_similarity: float = 0.9,
    copy_similarity: float = 0.99999,
    max_evenness: float = 0.9,
    min_evenness: float = 0.05,
    max_head_share: float = 0.5,
    min_points: int = 3,
) -> Iterator[Hit | Skip]:
    """Heads of a layer do the same.

    ## What it checks
    The rule takes the cosine of each head's attention to that of the most similar other head of its layer.

    - Only heads that choose are judged, those with an evenness below `max_evenness`: even heads are all alike.
    - A head is a copy where its cosine is over `copy_similarity` (lab: 3e-5 from 1 in ill runs, 9e-4 in healthy ones, 0 where
      heads are copies) and its entropy is within 1 % of its layer's, for copies have one entropy.
    - Heads with an evenness below `min_evenness` are no copies: heads that see one key alone come as near to 1.
    - A layer is sev2 where more than `max_head_share` of its heads are copies, at `min_points` checkpoints in a row, or at two in
      a run of few.
    - More than `max_head_share` of all judged heads over `note_similarity` is a note (D3.2).
    ## Why it matters
    Copies get the same gradient and stay copies: the layer has fewer heads than were paid for.
    ## False alarms
    Several heads that look at the previous token are common: they are similar, not equal.
    """
    yield from too_few(similarity, min_points)
    choosy = similarity.finite & _choosy(similarity, even, max_evenness)
    explained = np.zeros(len(similarity.steps), bool)
    copied = choosy & ~_choosy(similarity, even, min_evenness) & _as_wide(similarity, entropy)
    layers = [label.partition("/")[0] for label in similarity.labels]
    groups = [layer if layers.count(layer) >= 2 else None for layer in layers]
    over = replace(similarity, values=np.where(copied, similarity.values > copy_similarity, 0.0))
    equal = over.grouped(groups, lambda values: np.asarray(values.mean(axis=1)))
    for span in spans(equal, equal.values > max_head_share, min_points=min_points if similarity.points >= FEW_CHECKPOINTS else 2):
        explained[span.rows] = True
        yield Hit.over(
            span,
            "sev2",
            "{value:.0%} of the heads of {where} are copies of one another",
            badness=equal.values,
            limit=max_head_share,
        )
    share = _share(similarity, choosy, note_similarity)
    for span in spans(share, (share.values > max_head_share) & ~explained[:, None], min_points=min_points):
        yield Hit.over(
            span,
            "note",
            "{value:.0%} of the heads that are not uniform resemble another head of their layer; the limit is {limit:.0%}",
            badness=share.values,
            limit=max_head_share,
        )


def _choosy(similarity: Series, even: Series, chosen: float) -> Mask:
    evenness = at(even, similarity.steps)
    choosy = np.zeros(similarity.values.shape, bool)
    for column, label in enumerate(similarity.labels):
        if label in even.places:
            place = even.places[label]
            choosy[:, column] = (evenness.values[:, place] < chosen) & (evenness.age[:, place] == 0)
    return choosy


def _as_wide(similarity: Series, entropy: Series | None, *, within: float = 0.01) -> Mask:
    """Tell which heads have the median entropy of their layer, as copies do; all of them where no entropy is recorded."""
    same = np.ones(similarity.values.shape, bool)
    if entropy is None:
        return same
    aligned = at(entropy, similarity.steps)
    layers = np.array([label.partition("/")[0] for label in similarity.labels])
    for layer in dict.fromkeys(layers.tolist()):
        mine = np.flatnonzero(layers == layer)
        if all(similarity.labels[place] in entropy.places for place in mine):
            values = aligned.values[:, [entropy.places[similarity.labels[place]] for place in mine]]
            middle = row_medians(values)[:, None]
            same[:, mine] = ~(np.abs(values - middle) > within * middle)
    return same


def _share(similarity: Series, judged: Mask, limit: float, *, min_heads: int = 4) -> Series:
    """Return the share of the judged heads over a limit, where there are `min_heads` of them."""
    count = judged.sum(axis=1)
    with np.errstate(all="ignore"):
        return single(
            "attention", "1", similarity.steps, ((similarity.values > limit) & judged).sum(axis=1) / count, count >= min_heads
        )
