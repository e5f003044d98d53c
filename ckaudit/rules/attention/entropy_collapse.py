"""ATTN001: attention heads look at one key only."""

import math
from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.attention import attention_entropy_left, attn_entropy, max_attn_logit, normalized_attention_entropy
from ckaudit.metrics.loss import initial_loss_excess, is_solved, learnt_since, train_loss_raw
from ckaudit.metrics.reductions import row_medians
from ckaudit.rules.rule import FACTS, Hit, Skip, lasting_spans, rule, too_few
from ckaudit.run.attention_directions import directions_of, layer_of
from ckaudit.run.series import Floats, Mask, Series, at, single
from ckaudit.run.spans import spans

TWO_KEYS = math.log(2)
"""Entropy in nats of a head that weighs two keys equally: a head below it is dead (F10)."""


@rule(
    "ATTN001",
    severity="sev1",
    needs=[attention_entropy_left],
    wants=[attn_entropy, normalized_attention_entropy, max_attn_logit, initial_loss_excess, train_loss_raw, FACTS],
    unit="1",
)
def entropy_collapse(
    left: Series,
    entropy: Series | None,
    normalized: Series | None,
    logit: Series | None,
    start: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    *,
    max_left_share: float = 0.25,
    max_left_share_calm: float = 0.1,
    saturated_logit: float = 50.0,
    max_collapsed_share: float = 0.5,
    min_early_entropy: float = 0.35,
    min_loss_fall: float = 0.25,
) -> Iterator[Hit | Skip]:
    """Attention heads look at one key only.

    ## What it checks
    The rule judges what is left of the entropy of each head, and how many heads of the model, or of a layer, have collapsed.

    - A head has collapsed where it sees fewer than two keys in the mean (below log 2, F10), and at most `max_left_share` is left
      of the widest entropy it had.
    - Healthy heads keep 0.4 and more while they learn. In short sequences, log 2 alone is not little.
    - In a run that began knowing nothing, the log of the number of keys stands for the widest: a head that was sharp from the
      first step on counts as well.
    - A head whose largest logit is over `saturated_logit` is saturated, and need not see fewer than two keys. A head whose logit
      stays below chose to be sharp: only `max_left_share_calm` counts for it.
    - More than `max_collapsed_share` of all heads collapsed is sev1 (SEV1-3), and more than `max_collapsed_share` of one layer's
      heads is sev2.
    - A layer's finding is a note where its heads have chosen: the loss has fallen by `min_loss_fall` of itself since their median
      was soft.
    - Heads can have chosen where no logit of the layer is over `saturated_logit`, or where none is recorded of a layer that looks
      across, which aligns.
    - Either finding is a note where the loss is below a tenth of its first: to be sure of the one key that answers is then the
      solution.
    - A single head with less than `max_left_share_calm` is a note.
    - Heads sharp too early are a note: the median of all heads is below `min_early_entropy` of the possible, in a run that began
      knowing nothing and whose loss has not yet fallen by `min_loss_fall`.
    - In the lab, ordinary runs have 0.77 and more, and runs with a missing scale up to 0.29. A scale that is large by design
      comes as low.
    ## Why it matters
    A saturated softmax passes no gradient to queries and keys: the logits have outgrown their scale (TRI-4).
    ## False alarms
    Some heads of healthy models are sharp by design, such as those that look at the previous or the first token: a few are only
    noted. So are heads that were as sharp at the first checkpoint of a model that was trained before.
    """
    yield from too_few(left, 2)
    unknown = np.full(left.values.shape, np.nan)
    share, logits = (unknown if series is None else _beside(left, series) for series in (normalized, logit))
    knew_nothing = _knew_nothing(start)
    smallest = np.fmin(left.values, share) if knew_nothing else left.values
    is_sharp = ~((unknown if entropy is None else _beside(left, entropy)) >= TWO_KEYS)
    collapsed = (
        left.finite
        & (is_sharp | (logits > saturated_logit))
        & (smallest <= np.where(logits <= saturated_logit, max_left_share_calm, max_left_share))
    )
    reported, layers = np.zeros_like(collapsed), np.array([layer_of(label) for label in left.labels])
    for group in (None, *dict.fromkeys(layers.tolist())):
        heads = np.ones(len(layers), bool) if group is None else layers == group
        portion = _portion(left, collapsed[:, heads], left.finite[:, heads], group or "attention")
        is_new = ~reported[:, heads].any(axis=1, keepdims=True)
        for span in lasting_spans(portion, (portion.values > max_collapsed_share) & is_new):
            reported[np.ix_(span.rows, heads)] = True
            severity: Severity = "sev1" if group is None else "sev2"
            highest = float(np.nanmax(logits[:, heads], initial=0))
            aligns = highest == 0 and group is not None and directions_of([group], facts)[group] == "cross"
            if group is not None and loss is not None and (aligns or 0 < highest <= saturated_logit):
                wide = np.where(np.isfinite(share), share, left.values)[:, heads]
                severity = "note" if learnt_since(loss, _last_soft(left, wide, span.first)) > min_loss_fall else severity
            severity = "note" if is_solved(loss, left.steps[span.rows]).all() else severity
            yield Hit.over(
                span,
                severity,
                "{value:.0%} of the heads of {where} attend to one key only; the limit is {limit:.0%}",
                badness=portion.values,
                limit=max_collapsed_share,
            )
    if knew_nothing and loss is not None:
        yield from _too_early(left, share, reported, loss, early=min_early_entropy, learnt=min_loss_fall)
    yield from _single_heads(left, np.fmin(share, smallest), reported, max_left_share_calm)


def _single_heads(left: Series, smallest: Floats, reported: Mask, limit: float) -> Iterator[Hit]:
    """Yield a note on each sharp head that is not part of a collapsed group."""
    for span in lasting_spans(left, (smallest < limit) & ~reported):
        yield Hit.over(
            span,
            "note",
            "{where} attends to one key only: {value:.2g} of its entropy is left; the limit is {limit:.2g}",
            badness=-smallest,
            value=smallest,
            limit=limit,
        )


def _beside(left: Series, other: Series) -> Floats:
    """Return the values of another series at the same steps and heads, shape (C, H); NaN where it has none."""
    values = np.full(left.values.shape, np.nan)
    nearest = at(other, left.steps)
    places = {label: place for place, label in enumerate(other.labels)}
    shared = [(column, places[label]) for column, label in enumerate(left.labels) if label in places]
    if shared:
        ours, theirs = np.array(shared).T
        values[:, ours] = np.where(nearest.age[:, theirs] == 0, nearest.values[:, theirs], np.nan)
    return values


def _last_soft(left: Series, wide: Floats, before: int) -> int:
    """Return the last step before `before` at which the median head of a group had half of its width left, else `before`."""
    rows = np.flatnonzero((left.steps < before) & (row_medians(wide) >= 0.5))
    return int(left.steps[rows[-1]]) if len(rows) else before


def _too_early(left: Series, share: Floats, mask: Mask, loss: Series, *, early: float, learnt: float) -> Iterator[Hit]:
    """Yield the first steps at which the median head is sharp before anything is learnt; the sharpest layer is named."""
    first = int(left.steps[0])
    young = np.zeros(len(left.steps), bool)
    for row, step in enumerate(left.steps.tolist()):
        if learnt_since(loss, first, until=step) > learnt:
            break
        young[row] = True
    layers = np.array([layer_of(label) for label in left.labels])
    levels = {layer: row_medians(share[young][:, layers == layer]) for layer in dict.fromkeys(layers.tolist())}
    sharpest = min(levels, key=lambda layer: float(np.nan_to_num(levels[layer], nan=1.0).sum()))
    middle = single(sharpest, "1", left.steps, row_medians(share))
    new = young & ~mask.any(axis=1)
    for span in spans(middle, (middle.values < early) & new[:, None], min_points=2):
        yield Hit.over(
            span,
            "note",
            "heads are sharp before they have learnt where to look, most of all in {where}: the median entropy is "
            "{value:.2g} of the possible, below {limit:.2g}",
            badness=-middle.values,
            value=middle.values,
            limit=early,
        )


def _knew_nothing(start: Series | None) -> bool:
    """Tell whether the run certainly began from nothing: its first loss was about that of a guess."""
    known = start.values[start.finite] if start is not None else np.empty(0)
    return bool(known.size) and float(known[0]) > -0.5


def _portion(left: Series, collapsed: Mask, among: Mask, label: str) -> Series:
    """Return the share of collapsed heads at each step, among a group's recorded heads."""
    count = among.sum(axis=1)
    with np.errstate(all="ignore"):
        return single(label, "1", left.steps, (collapsed & among).sum(axis=1) / count, count > 0)
