"""GRAD007: one tensor holds nearly all of the gradient norm."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.gradients import grad_to_weight, gradient_share
from ckaudit.metrics.optimizer import clip_coefficient
from ckaudit.rules.rule import Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Mask, Series, at
from ckaudit.run.spans import spans


@rule("GRAD007", severity="sev2", needs=[gradient_share], wants=[clip_coefficient, grad_to_weight], unit="1")
def dominant_tensor(
    share: Series, clip: Series | None, relative: Series | None, *,
    most: float = 0.95, min_points: int = 3, warmup: int = 20, deep: float = 0.1, large: float = 10.0, shock: float = 100.0,
    little: float = 0.1, history: int = 5,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """One tensor holds nearly all of the gradient norm.

    ## What it checks
    The largest tensor's share in the squared gradient norm, after the first `warmup` steps: over `most` at `min_points`
    checkpoints in a row. It is sev2 where clipping then leaves less than `deep` of the gradient, so that this tensor
    decides how far all others move (TRI-3), or where its gradient is over `large` times its own weights (F16: usual up to
    0.1), or where it had less than `little` in the median of `history` checkpoints and more before (lab: healthy runs from
    0.28); else a note. A gradient over `shock` times the weights, with that share, is sev2 at a single checkpoint.
    ## Why it matters
    Clipping by the global norm then scales every tensor down because of one.
    ## False alarms
    The embedding or the head has 95 to 99 % of the norm at the start of every healthy run, and the head again while
    nothing but the frequency of tokens is learnt: there the others have little, it has not much.
    """
    yield from too_few(share, min_points)
    high = (np.nan_to_num(share.values) > most) & (share.steps > warmup)[:, None]
    size = _aligned(share, relative)
    clipped = _clipped(share, clip, deep)
    for span in spans(share, high, min_points=1):
        inside = (span.rows, span.column)
        sizes = np.nan_to_num(size[inside])
        before = share.values[: span.rows[0], span.column]
        is_new = len(before) >= history and float(np.median(np.nan_to_num(before))) < little
        grave = bool(span.points >= min_points and (is_new or ((sizes > large) | clipped[inside]).sum() >= min_points))
        if not grave and not (sizes > shock).any() and span.points < min_points:
            continue
        yield Hit.over(
            span, "sev2" if grave or (sizes > shock).any() else "note",
            "{where} holds {value:.1%} of the squared gradient norm; above {limit:.0%} it decides how all others are clipped",
            badness=share.values, limit=most,
        )  # fmt: skip


def _aligned(share: Series, relative: Series | None) -> Floats:
    """Return gradient over weights in the shape of the shares, NaN where it is not known."""
    values = np.full(share.values.shape, np.nan)
    if relative is None:
        return values
    found = at(relative, share.steps)
    for column, label in enumerate(share.labels):
        if label in relative.labels:
            place = relative.labels.index(label)
            values[:, column] = np.where(found.age[:, place] == 0, found.values[:, place], np.nan)
    return values


def _clipped(share: Series, clip: Series | None, deep: float) -> Mask:
    if clip is None:
        return np.zeros(share.values.shape, bool)
    left = at(clip, share.steps)
    return np.broadcast_to((left.values < deep) & (left.age == 0), share.values.shape)
