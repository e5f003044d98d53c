"""GRAD002: the gradient norm grows without bound."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.material.counts import plural
from ckaudit.metrics.gradients import boxed_gradient_norm, grad_global_norm
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import Span, spans


@rule("GRAD002", severity="sev1", needs=[grad_global_norm], wants=[boxed_gradient_norm, train_loss_raw], unit="1")
def exploding_gradient(
    norm: Series,
    box: Series | None,
    loss: Series | None,
    *,
    window: int = 50,
    min_history: int = 10,
    note_ratio: float = 4.0,
    max_ratio: float = 10.0,
    min_points: int = 3,
    shock: float = 1000.0,
    blocks: int = 24,
    most: float = 0.9,
    felt: float = 0.05,
) -> Iterator[Hit | Skip]:
    """The gradient norm leaves its usual size by an order of magnitude and stays there.

    ## What it checks
    The global gradient norm over the median of the previous `window` points (at least `min_history`). From `max_ratio` on
    (trainproof and runmedic use the same ten) for `min_points` points in a row it is an explosion (playbook D4.3). A
    shorter one over `shock` is sev2: a plateau that is left reaches 110 (lab), a large spike 160 (public logs), a flipped
    bit 650,000. So is a median over one of `blocks` parts of the run that is `max_ratio` times that of all parts before it:
    a norm that grows slowly takes the running median with it. What is shorter but over `note_ratio` is noted, all of it once.
    Where a black box holds the step of a short one, and a tensor has more than `most` of the squared norm, that is the place.
    An explosion is only noted where the norm stays below its own median over the first `min_history` points and the loss
    stays within `felt` of its range above the lowest.
    ## Why it matters
    Without clipping the next updates throw the weights out of their basin; with clipping they all point where one batch
    did.
    ## False alarms
    Single outliers are common in healthy runs and only noted. The embedding's large share at the start is part of the
    median. A model that has learnt its data has next to no gradient left, and one hard sample is many times that: such a norm is
    large beside nothing, and far below what the same weights were trained with.
    """
    if norm.points <= min_history:
        yield Skip("too_few_points", f"{norm.points} points of the gradient norm; more than {min_history} are needed")
        return
    ratio = _over_running_median(norm, window, min_history)  # (T, 1)
    high = np.nan_to_num(ratio) > max_ratio
    for span in spans(norm, high, min_points=min_points):
        if _is_harmless(span, norm, loss, min_history, felt):
            continue
        yield Hit.over(
            span, "sev1", "the gradient norm reaches {value:.3g}x its running median; the limit is {limit:.0f}x",
            badness=ratio, limit=max_ratio,
        )  # fmt: skip
        ratio[span.rows] = np.nan
    for span in spans(norm, np.nan_to_num(ratio) > shock):
        hit = Hit.over(
            span, "sev2", "the gradient norm is {value:.3g}x its running median for a moment; batches stay below {limit:.0f}x",
            badness=ratio, limit=shock,
        )  # fmt: skip
        yield _placed(hit, box, most)
        ratio[span.rows] = np.nan
    if not np.isnan(ratio[norm.finite[:, 0]][min_history:]).any():
        yield from _slow(norm, blocks, min_history, max_ratio)
    yield from _isolated(norm, np.nan_to_num(ratio[:, 0]), note_ratio)


def _is_harmless(span: Span, norm: Series, loss: Series | None, first: int, felt: float) -> bool:
    """Tell whether a norm is no larger than at the start, and the loss as good as the best that the run has come to."""
    began = np.median(norm.values[norm.finite[:, 0], 0][:first])
    if loss is None or not (norm.values[span.rows, 0] < began).all():
        return False
    within = loss.finite[:, 0] & (loss.steps >= span.first) & (loss.steps <= span.last)
    before = loss.values[loss.finite[:, 0] & (loss.steps <= span.last), 0]
    lowest, highest = before.min(initial=np.inf), before.max(initial=-np.inf)
    return bool(within.any() and (loss.values[within, 0] <= lowest + felt * (highest - lowest)).all())


def _placed(hit: Hit, box: Series | None, most: float) -> Hit:
    """Return a hit with the tensor that has most of the gradient at its worst step, where the black box tells."""
    if box is None or hit.worst is None or hit.worst not in box.steps:
        return hit
    norms = np.nan_to_num(box.values[int(np.searchsorted(box.steps, hit.worst))], posinf=0.0)
    total, top = float(np.hypot.reduce(norms)), int(np.argmax(norms))
    if not total or (norms[top] / total) ** 2 <= most:
        return hit
    share = (norms[top] / total) ** 2
    return replace(hit, where=box.labels[top], message=f"{hit.message}; {{where}} has {share:.1%} of its square")


def _slow(norm: Series, blocks: int, least: int, limit: float) -> Iterator[Hit]:
    """Yield a norm that has grown over the whole run: a part of it against all parts before, the first quarter left out."""
    known = np.flatnonzero(norm.finite[:, 0])
    if len(known) < blocks * least:
        return
    parts = np.array_split(known, blocks)
    middle = np.array([np.median(norm.values[part, 0]) for part in parts])
    with np.errstate(all="ignore"):
        grown = np.array([np.nan_to_num(middle[row] / np.median(middle[:row])) for row in range(blocks // 4, blocks)])
    high = blocks // 4 + np.flatnonzero(grown > limit)
    if not len(high):
        return
    worst = int(high[np.argmax(middle[high])])
    yield Hit(
        severity="sev2", where=norm.labels[0], value=float(middle[worst]), limit=float(np.median(middle[: high[0]])),
        first=int(norm.steps[parts[high[0]][0]]), last=int(norm.steps[parts[high[-1]][-1]]),
        worst=int(norm.steps[parts[worst][0]]),
        points=sum(len(parts[row]) for row in high),
        message="the gradient norm has grown to {value:.3g}; over all parts of the run before it was {limit:.3g}",
    )  # fmt: skip


def _isolated(norm: Series, ratio: Floats, limit: float) -> Iterator[Hit]:
    rows = np.flatnonzero(ratio > limit)
    if not len(rows):
        return
    worst = int(np.argmax(ratio))
    yield Hit(
        severity="note", where=norm.labels[0], first=int(norm.steps[rows[0]]), last=int(norm.steps[rows[-1]]),
        worst=int(norm.steps[worst]), value=float(ratio[worst]), limit=limit, points=len(rows),
        message=f"the gradient norm stands over {limit:g}x its running median at {plural(len(rows), 'step')}; most at step "
        f"{{worst}}, where it is {norm.values[worst, 0]:.3g}, {{value:.3g}}x",
    )  # fmt: skip


def _over_running_median(norm: Series, window: int, min_history: int) -> Floats:
    """Return each point over the median of the finite points before it; NaN before there are enough of them."""
    known = np.flatnonzero(norm.finite[:, 0])
    values = norm.values[known, 0]
    ratio = np.full(norm.values.shape, np.nan)
    with np.errstate(all="ignore"):
        for row in range(min_history, min(window, len(known))):
            ratio[known[row], 0] = values[row] / np.median(values[:row])
        if len(known) > window:
            before = np.lib.stride_tricks.sliding_window_view(values[:-1], window)
            ratio[known[window:], 0] = values[window:] / np.median(before, axis=1)
    return ratio
