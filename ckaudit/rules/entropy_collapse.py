"""ATTN001: attention heads look at one key only."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.report import Severity
from ckaudit.metrics.attention import max_attn_logit, normalized_attention_entropy
from ckaudit.metrics.learnt import learnt_since
from ckaudit.metrics.loss import initial_loss_excess, train_loss_raw
from ckaudit.metrics.medians import row_medians
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Mask, Series, at, single
from ckaudit.run.spans import spans


@rule(
    "ATTN001", severity="sev1", needs=[normalized_attention_entropy], wants=[max_attn_logit, initial_loss_excess, train_loss_raw],
    unit="1",
)  # fmt: skip
def entropy_collapse(
    entropy: Series, logit: Series | None, start: Series | None, loss: Series | None, *, sharp: float = 0.1,
    layer_share: float = 0.5, model_share: float = 0.5, min_points: int = 2, hot: float = 50.0, hot_sharp: float = 0.25,
    young: int = 100, early: float = 0.35, early_points: int = 2, learnt: float = 0.25, soft: float = 0.5, paid: float = 0.5,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """Attention heads look at one key only.

    ## What it checks
    The entropy of each head over the log of the keys it may see. Below `sharp` a head is collapsed; so it is below `hot_sharp`
    while its largest logit is over `hot`, for then sharpness comes from saturation and not from choice (lab: healthy heads 0.4
    and more, with logits up to 28; ill ones 0.2 with 70 and more). When more than `model_share` of all heads are, at `min_points`
    checkpoints in a row, it is sev1 (SEV1-3); more than `layer_share` of one layer's heads is sev2, and noted where they have
    chosen: no logit of the layer is over `hot`, and the loss has fallen by `learnt` of itself since then, or by `paid` of itself
    until then from the last checkpoint on at which their median was `soft`. Single heads are noted (F10 counts them dead). Where
    the median of all heads is below `early` at `early_points` checkpoints in a row, in the first `young` steps of a run that
    began knowing nothing, that is noted (lab: ordinary runs from 0.77, a scale that is missing up to 0.29; one that is large by
    design comes as low).
    ## Why it matters
    Saturated softmax passes no gradient to queries and keys: the logits have outgrown their scale (TRI-4).
    ## False alarms
    Some heads of healthy models are sharp by design, such as those that look at the previous token: a few are only noted.
    """
    yield from too_few(entropy, min_points)
    is_hot = _hot(entropy, logit, hot)
    collapsed = (entropy.values < np.where(is_hot, hot_sharp, sharp)) & entropy.finite  # (T, H)
    told, finite, layers = np.zeros_like(collapsed), entropy.finite, _layers(entropy)
    for group in (None, *dict.fromkeys(layers)):
        mine = np.array([group in (None, layer) for layer in layers])
        limit = model_share if group is None else layer_share
        calm = logit is not None and not is_hot[:, mine].any()
        share = _share(entropy, collapsed[:, mine], finite[:, mine], group or "attention")
        for span in spans(share, (share.values > limit) & ~told[:, mine].any(axis=1, keepdims=True), min_points=min_points):
            told[np.ix_(span.rows, mine)] = True
            severity: Severity = "sev1" if group is None else "sev2"
            if group is not None and calm and loss is not None:
                since = _last_soft(entropy, mine, span.first, soft)
                chosen = learnt_since(loss, span.first) > learnt or learnt_since(loss, since, until=span.first) > paid
                severity = "note" if chosen else severity
            yield Hit.over(
                span, severity, "{value:.0%} of the heads of {where} attend to one key only; the limit is {limit:.0%}",
                badness=share.values, limit=limit,
            )  # fmt: skip
    if _knew_nothing(start):
        yield from _too_early(entropy, told, young=young, limit=early, points=early_points)
    for span in spans(entropy, collapsed & ~told, min_points=min_points):
        yield Hit.over(
            span, "note", "{where} attends to one key only: its entropy is {value:.2g} of the possible, below {limit:.2g}",
            badness=-entropy.values, value=entropy.values, limit=sharp,
        )  # fmt: skip


def _last_soft(entropy: Series, mine: Mask, before: int, soft: float) -> int:
    """Return the last step before another at which the median head of a group was soft; that step where none was."""
    middle = row_medians(np.where(entropy.finite, entropy.values, np.nan)[:, mine])
    rows = np.flatnonzero((entropy.steps < before) & (middle >= soft))
    return int(entropy.steps[rows[-1]]) if len(rows) else before


def _too_early(entropy: Series, told: Mask, *, young: int, limit: float, points: int) -> Iterator[Hit]:
    """Yield the first steps in which the median head is sharp and nothing was told yet, at the layer that is sharpest."""
    early = entropy.steps <= young
    heads = np.where(entropy.finite, entropy.values, np.nan)
    layers = np.array(_layers(entropy))
    levels = {layer: row_medians(heads[early][:, layers == layer]) for layer in dict.fromkeys(layers.tolist())}
    sharpest = min(levels, key=lambda layer: float(np.nan_to_num(levels[layer], nan=1.0).sum()))
    middle = single(sharpest, "1", entropy.steps, row_medians(heads))
    new = early & ~told.any(axis=1)
    for span in spans(middle, (middle.values < limit) & new[:, None], min_points=points):
        yield Hit.over(
            span, "note", "heads are sharp before they have learnt where to look, most of all in {where}: the median entropy is "
            "{value:.2g} of the possible, below {limit:.2g}", badness=-middle.values, value=middle.values, limit=limit,
        )  # fmt: skip


def _knew_nothing(start: Series | None) -> bool:
    """Tell whether the run surely began from nothing: its first loss was about that of a guess."""
    known = start.values[start.finite] if start is not None else np.empty(0)
    return bool(known.size) and float(known[0]) > -0.5


def _hot(entropy: Series, logit: Series | None, limit: float) -> Mask:
    """Tell of each head whether its largest logit is over `limit`, shape (T, H)."""
    hot = np.zeros(entropy.values.shape, bool)
    if logit is None:
        return hot
    found = at(logit, entropy.steps)
    for column, label in enumerate(entropy.labels):
        if label in logit.labels:
            place = logit.labels.index(label)
            hot[:, column] = (found.values[:, place] > limit) & (found.age[:, place] == 0)
    return hot


def _layers(entropy: Series) -> list[str]:
    return [label.partition("/")[0] for label in entropy.labels]


def _share(entropy: Series, collapsed: Mask, among: Mask, label: str) -> Series:
    """Return the share of collapsed heads at each step, among those of some heads that were recorded."""
    count = among.sum(axis=1)
    with np.errstate(all="ignore"):
        return single(label, "1", entropy.steps, (collapsed & among).sum(axis=1) / count, count > 0)
