"""CLIP001: gradient clipping acts at almost every step."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.gradients import grad_global_norm
from ckaudit.metrics.loss import ratio_to_guess, train_loss_raw
from ckaudit.metrics.movement import epsilon_to_gradient
from ckaudit.metrics.optimizer import clip_coefficient, grad_clip_rate, share_of_last
from ckaudit.rules.rule import Hit, Skip, needs_one_of, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Series, Steps, at
from ckaudit.run.spans import Span, reaching_back, spans


@rule(
    "CLIP001",
    severity="sev2",
    needs=[],
    wants=[grad_clip_rate, clip_coefficient, train_loss_raw, epsilon_to_gradient, grad_global_norm],
    unit="1",
    memory=100,
)
def frequent_clipping(
    rate: Series | None,
    coefficient: Series | None,
    loss: Series | None,
    epsilon: Series | None,
    norm: Series | None,
    *,
    warmup: int = 100,
    note_rate: float = 0.5,
    max_rate: float = 0.9,
    deep_coefficient: float = 0.03,
    min_points: int = 3,
    felt_epsilon: float = 0.1,
) -> Iterator[Hit | Skip]:
    """Clipping acts at almost every step and takes most of the gradient away.

    ## What it checks
    The rule takes the share of clipped steps among the last hundred (M10), after the first `warmup` steps or, in a shorter run,
    after its first half.

    - The share is above `max_rate` while clipping leaves less than `deep_coefficient` of the gradient, at `min_points` points in
      a row: clipping hides a cause (playbook D4.4), sev2.
    - Where the loss is larger than a guess among tokens costs, `deep_coefficient` is as many times smaller.
    - A share above `note_rate` is a note.
    - Each is reported once, from the first such point to the last.
    - Deep clipping began with the first coefficient below `deep_coefficient` of those in a row, warm-up or not.
    ## Why it matters
    Clipping that never rests is a second learning rate, which the largest tensor sets (TRI-3).
    ## False alarms
    Some clipping is only noted, or is left out:

    - Many healthy recipes clip at nearly every step, but mildly: the norm stays around the limit. That is a note.
    - A coefficient of exactly 0 belongs to an infinite norm, whose update the loss scaler skips: it is left out.
    - Gradients that begin large and shrink, as with batch normalization, are clipped deeply only at first: a note where the last
      tenth of the coefficients is not deep.
    - Where only the share of clipped steps is logged, nobody knows how much clipping leaves: a note.
    - An adaptive optimizer divides out the size of the gradient. Its update feels a limit on the norm only where epsilon reaches
      `felt_epsilon` of the clipped gradient of an element, in some matrix.
    - Where no matrix feels epsilon, deep clipping is a note (DETR limits norms of 10 and more to 0.1, and trains by AdamW).
    """
    if coefficient is not None and (rate is None or rate.points < min_points):  # the metric begins at its tenth point
        rate = share_of_last(coefficient, coefficient.values < 1, window=100, min_points=min_points)
    if rate is None:
        yield needs_one_of(grad_clip_rate, clip_coefficient)
        return
    deep_coefficient /= ratio_to_guess(loss)
    late = rate.steps > min(warmup, int(rate.steps.max(initial=0)) // 2)
    left = at(coefficient, rate.steps).values if coefficient is not None else np.full(rate.values.shape, np.nan)  # (T, 1)
    judged = rate.finite & late[:, None]
    high = (rate.values > max_rate) & (left < deep_coefficient) & (left > 0) & judged
    # A short run has few shares of a hundred steps, but many coefficients of single steps.
    is_deep = coefficient is not None and _ends_deep(coefficient, deep_coefficient, min_points)
    known = max(1, int((judged & (left != 0)).sum())) if is_deep else min_points
    severe_spans = list(spans(rate, high, among=judged & (left != 0), min_points=min(min_points, known)))
    rows = np.concatenate([span.rows for span in severe_spans]) if severe_spans else np.empty(0, np.int64)
    if len(rows) and coefficient is not None:
        rests = clips_less_at_end(coefficient, deep_coefficient, min_points)
        is_void = is_cancelled_by_adam(coefficient, norm, epsilon, felt_epsilon)
        hit = _over(
            rate,
            rows,
            "note" if rests or is_void else "sev2",
            left,
            at_least=False,
            limit=deep_coefficient,
            message=f"clipping leaves {median(left[rows, 0]):.2g} of the gradient at the median step, {{value:.2g}} at the "
            "worst; limits usually leave over {limit:.1g}"
            + ("; at the end it leaves more" if rests else "")
            + ("; the optimizer divides it out again" if is_void else ""),
        )
        began = _began(coefficient, int(rate.steps[rows[0]]), deep_coefficient)
        judged &= ~((rate.steps >= began) & (rate.steps <= rate.steps[rows[-1]]))[:, None]
        yield replace(hit, first=began)
    mild = np.flatnonzero((rate.values > note_rate) & judged)
    if len(mild):
        strength = "mildly" if coefficient is not None else "by how much is not recorded"
        message = f"{{value:.0%}} of the last hundred steps were clipped, {strength}"
        yield _over(rate, mild, "note", rate.values, at_least=True, limit=note_rate, message=message)


def _ends_deep(coefficient: Series, deep: float, points: int) -> bool:
    """Tell whether the last `points` coefficients that are not zero all leave less than a share of the gradient."""
    known = coefficient.values[coefficient.finite & (coefficient.values > 0)]
    return len(known) >= points and bool((known[-points:] < deep).all())


def clips_less_at_end(coefficient: Series, deep: float, min_points: int, *, end_share: float = 0.1) -> bool:
    """Tell whether clipping leaves more of the gradient at the end, as where gradients shrink with what is learnt."""
    known = coefficient.values[coefficient.finite & (coefficient.values > 0)]
    return median(known[-max(min_points, int(end_share * len(known))) :]) >= deep


def is_cancelled_by_adam(
    coefficient: Series | None, norm: Series | None, epsilon: Series | None, felt: float, *, apart: float = 0.01
) -> bool:
    """Tell whether updates are the same with and without clipping: those of an adaptive optimizer whose epsilon no matrix feels.

    Clipping of each element by itself changes the gradient's direction, and leaves another norm each time.

    Args:
        coefficient: Share of the gradient that clipping leaves, shape (T, 1).
        norm: The gradient norm before it, shape (T, 1).
        epsilon: Epsilon over the clipped gradient of an element, shape (C, P); None or empty: the optimizer does not adapt.
        felt: Fraction from which on epsilon makes an update smaller.
        apart: Largest relative deviation of the clipped norms from a single limit.
    """
    if not epsilon or not coefficient or not norm:
        return False
    left = coefficient.values[:, 0] * at(norm, coefficient.steps).values[:, 0]
    left = left[np.isfinite(left) & (coefficient.values[:, 0] < 1) & (coefficient.values[:, 0] > 0)]
    is_of_norm = len(left) > 0 and median(np.abs(left / median(left) - 1)) < apart
    columns = [epsilon.values[known, index] for index in range(len(epsilon.labels)) if (known := epsilon.finite_in(index)).any()]
    return is_of_norm and bool(columns) and all(median(column) < felt for column in columns)


def _began(coefficient: Series, judged: int, deep: float) -> int:
    """Return the first step of the deep clipping that was judged at a later one."""
    row = np.flatnonzero(coefficient.finite[:, 0] & (coefficient.steps <= judged))[-1:]
    is_deep = (coefficient.values < deep) & (coefficient.values > 0)
    return reaching_back(Span(coefficient.labels[0], 0, row, coefficient.steps[row]), coefficient, is_deep).first


def _over(rate: Series, rows: Steps, severity: Severity, shown: Floats, *, at_least: bool, limit: float, message: str) -> Hit:
    """Return one hit for all rows, however often clipping paused between them."""
    inside = shown[rows, 0]
    worst = int(np.argmax(inside if at_least else -inside))
    return Hit.at(rate.steps[rows], severity, message, where=rate.labels[0], value=float(inside[worst]), limit=limit, worst=worst)
