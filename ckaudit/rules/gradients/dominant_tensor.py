"""GRAD007: one tensor holds nearly all of the gradient norm."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.gradients import grad_global_norm, grad_to_weight, gradient_share, top_gradient_share
from ckaudit.metrics.loss import ratio_to_guess, train_loss_raw
from ckaudit.metrics.movement import epsilon_to_gradient
from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate
from ckaudit.metrics.weights import weight_norm
from ckaudit.rules.gradients.frequent_clipping import frequent_clipping, is_cancelled_by_adam
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Series, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import table_of

LARGE_RATIO, SHOCK_RATIO = 10.0, 100.0
"""Ratios of gradient to weights that are far too high, at several checkpoints and at a single one (F16: usually up to 0.1)."""

MAX_EARLIER_SHARE, MIN_EARLIER_CHECKPOINTS = 0.1, 5
"""Largest earlier share, at so many checkpoints, of a tensor that newly dominates: healthy tensors begin at 0.28 (lab)."""

VOID = "the optimizer divides it out again"
FELT_EPSILON: float = frequent_clipping.thresholds["felt_epsilon"]

MIN_STEADY_SHARE = 0.75
"""Least share of the checkpoints with the same offender: a healthy Swin's largest tensor is the offender at a quarter of them."""


@rule(
    "GRAD007",
    severity="sev2",
    needs=[],
    wants=[
        gradient_share,
        top_gradient_share,
        clip_coefficient,
        grad_clip_rate,
        grad_to_weight,
        weight_norm,
        train_loss_raw,
        FACTS,
        epsilon_to_gradient,
        grad_global_norm,
    ],
    unit="1",
)
def dominant_tensor(
    share: Series | None,
    top: Series | None,
    clip: Series | None,
    rate: Series | None,
    relative: Series | None,
    sizes: Series | None,
    loss: Series | None,
    facts: Manifest | None,
    epsilon: Series | None,
    norm: Series | None,
    *,
    max_share: float = 0.95,
    offender_share: float = 0.67,
    min_clipped_share: float = 0.5,
    deep_coefficient: float = 0.1,
    min_points: int = 3,
    warmup: int = 20,
) -> Iterator[Hit | Skip]:
    """One tensor holds nearly all of the gradient norm.

    ## What it checks
    The rule judges the largest tensor's share of the squared gradient norm, first where the gradient is clipped most of the time,
    then anywhere.

    - Clipping acts most of the time where, at three quarters of the checkpoints, the gradient is clipped, or is clipped in
      `min_clipped_share` of the steps around them.
    - Under such clipping, a tensor with more than `offender_share` of the squared norm at as many checkpoints, twice what all
      others have together, is the offender of TRI-3.
    - The offender is sev2 where its gradient over its weights is also ten times that of the median tensor or unknown, or where it
      is a normalization's few numbers.
    - Any other offender is a note: the largest layer of a small model has most of the norm by its size.
    - An embedding or a head must hold more than `max_share`, after the first `warmup` steps, under clipping that leaves less than
      `deep_coefficient` of the gradient, where that is known.
    - Where the loss is larger than a guess among tokens costs, `deep_coefficient` is as many times smaller.
    - Without such clipping, a share over `max_share` at `min_points` checkpoints in a row after the first `warmup` steps counts.
    - That share is sev2 where clipping leaves less than `deep_coefficient`, where the gradient is over ten times the tensor's own
      weights, or where the tensor had little of the norm before. Else it is a note.
    - With that share, a gradient over a hundred times the weights, and ten times what it was of them before, is sev2 at a single
      checkpoint.
    - Gradient over weights counts only where it is ten times that of the median tensor: a loss in large units makes all gradients
      large.
    ## Why it matters
    Clipping by the global norm then scales every tensor down because of one tensor.
    ## False alarms
    Some tensors rightly hold most of the norm:

    - The embedding or the head has 95 to 99 % of the norm at the start of every healthy run. The head has it again while only the
      frequency of tokens is learnt: the other tensors have little then.
    - A healthy BERT that is clipped mildly at every step has 0.8 of the norm in its embedding.
    - A bias, and a tensor that began at zero, as the second matrix of LoRA, is as large as what it has learnt. Its gradient over
      its weights says nothing: only one that was small before counts.
    - An adaptive optimizer divides out the size of each tensor's gradient. Where no matrix feels the optimizer's epsilon,
      clipping starves none and counts for a note alone, as for a policy's value head.
    """
    judged = share if share is not None and share.points else top
    if judged is None:
        yield needs_one_of(gradient_share, top_gradient_share)
        return
    yield from too_few(judged, min_points)
    is_void = is_cancelled_by_adam(clip, norm, epsilon, FELT_EPSILON)
    deep_coefficient = 0.0 if is_void else deep_coefficient / ratio_to_guess(loss)
    sized = _has_size(judged, sizes)
    offenders = list(
        _offenders(
            judged,
            clip,
            rate,
            relative,
            sized,
            facts,
            max_share,
            offender_share,
            min_clipped_share,
            deep_coefficient,
            min_points,
            warmup,
        )
    )
    offenders = [replace(hit, severity="note", message=f"{hit.message}; {VOID}") if is_void else hit for hit in offenders]
    reported = {hit.where for hit in offenders}
    holders = list(
        _holders(judged, clip, relative, sized, set() if is_void else reported, max_share, deep_coefficient, min_points, warmup)
    )
    graver = {hit.where for hit in holders if hit.severity != "note"}
    yield from (hit for hit in offenders if hit.where not in graver)
    yield from (hit for hit in holders if hit.where not in reported - graver)


def _offenders(
    share: Series,
    clip: Series | None,
    rate: Series | None,
    relative: Series | None,
    sized: Mask,
    facts: Manifest | None,
    max_share: float,
    much: float,
    often: float,
    deep: float,
    min_points: int,
    warmup: int,
) -> Iterator[Hit]:
    """Yield the tensor that causes the clipping most of the time."""
    tensors = table_of(facts)
    rows = np.flatnonzero(share.finite.any(axis=1))
    clipped = _is_clipped(share, clip, rate, often)
    hard = _is_deep(share, clip, deep)[:, 0] if clip is not None and len(share.labels) else clipped
    if len(rows) < min_points or clipped[rows].mean() < MIN_STEADY_SHARE:
        return
    is_known = relative is not None and relative.points
    size = sized * _beyond_others(cells_like(share, relative)) if relative and is_known else np.ones(share.values.shape)
    for column, name in enumerate(share.labels):
        first_layer = tensors.kind(name) in ("embedding", "head")
        among = rows[share.steps[rows] > warmup] if first_layer else rows
        limit = max_share if first_layer else much
        high = among[(share.values[among, column] > limit) & (hard if first_layer else clipped)[among]]
        if len(among) < min_points - 1 or len(high) < max(MIN_STEADY_SHARE * len(among), min_points - 1):
            continue
        values = share.values[high, column]
        is_out_of_proportion = tensors.kind(name) == "norm" or np.count_nonzero(size[high, column]) >= MIN_STEADY_SHARE * len(
            high
        )
        yield Hit.at(
            share.steps[high],
            "sev2" if is_out_of_proportion else "note",
            "{where} holds up to {value:.1%} of the squared gradient norm, and the gradient is clipped most of the time: "
            "it decides how all others are scaled",
            where=name,
            value=float(values.max()),
            limit=limit,
            worst=int(np.argmax(values)),
        )


def _has_size(share: Series, sizes: Series | None) -> Mask:
    """Tell which tensors' weights have a size of their own, shape (P,): not biases, nor tensors that are zero at first."""
    zero = {name for name, size in zip(sizes.labels, sizes.values[0], strict=True) if size == 0} if sizes else set()
    return np.array([name not in zero and not is_bias(name) for name in share.labels], bool)


def _beyond_others(relative: Floats) -> Floats:
    """Return each tensor's gradient over its weights; 0 where it is not ten times the median tensor's."""
    ordered = np.sort(relative, axis=1)  # NaN last
    lower_middle = np.maximum(np.isfinite(relative).sum(axis=1) - 1, 0) // 2
    usual = np.take_along_axis(ordered, lower_middle[:, None], axis=1)
    return np.where(np.nan_to_num(relative) > LARGE_RATIO * np.nan_to_num(usual), np.nan_to_num(relative), 0.0)


def _holders(
    share: Series,
    clip: Series | None,
    relative: Series | None,
    sized: Mask,
    reported: set[str | None],
    max_share: float,
    deep: float,
    min_points: int,
    warmup: int,
) -> Iterator[Hit]:
    """Yield the tensors that hold nearly all of the norm, clipped or not."""
    high = (np.nan_to_num(share.values) > max_share) & (share.steps > warmup)[:, None]
    own = np.zeros(share.values.shape) if relative is None else cells_like(share, relative)
    size = _beyond_others(own)
    clipped = _is_deep(share, clip, deep)
    for span in spans(share, high, min_points=1):
        inside = (span.rows, span.column)
        sizes = size[inside]
        is_out = (sizes > LARGE_RATIO) & sized[span.column]
        before = share.values[: span.rows[0], span.column]
        is_new = len(before) >= MIN_EARLIER_CHECKPOINTS and median(np.nan_to_num(before)) < MAX_EARLIER_SHARE
        is_severe = bool(span.points >= min_points and (is_new or (is_out | clipped[inside]).sum() >= min_points))
        known = np.nan_to_num(own[: span.rows[0], span.column])
        usual = median(known) if len(known) >= MIN_EARLIER_CHECKPOINTS else 0.0
        shock = bool((sizes > max(SHOCK_RATIO, LARGE_RATIO * usual)).any() and (usual or sized[span.column]))
        if span.label in reported or (not is_severe and not shock and span.points < min_points):
            continue
        yield Hit.over(
            span,
            "sev2" if is_severe or shock else "note",
            "{where} holds {value:.1%} of the squared gradient norm; above {limit:.0%} it decides how all others are clipped",
            badness=share.values,
            limit=max_share,
        )


def _is_clipped(share: Series, clip: Series | None, rate: Series | None, often: float) -> Mask:
    """Return the checkpoints at which the gradient was clipped, or around which it often was, shape (T,)."""
    clipped = np.zeros(len(share.steps), bool)
    if clip is not None:
        clipped |= at(clip, share.steps).values[:, 0] < 1
    if rate is not None:
        clipped |= at(rate, share.steps).values[:, 0] >= often
    return clipped


def _is_deep(share: Series, clip: Series | None, deep: float) -> Mask:
    if clip is None:
        return np.zeros(share.values.shape, bool)
    left = at(clip, share.steps)
    return np.broadcast_to(((left.values < deep) & (left.age == 0))[:, :1], share.values.shape)  # as `_is_clipped` takes it
