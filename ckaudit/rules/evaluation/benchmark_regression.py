"""EVAL002: a small benchmark falls back."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.score_names import EPISODE_RETURN, LESS_IS_BETTER
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.robust import MAD_TO_SIGMA, difference_noise
from ckaudit.run.series import Floats, Series
from ckaudit.run.spans import Span, spans

MIN_TREND_POINTS = 12
"""With fewer values, their trend dominates the steps between them: noise is then taken from differences of steps instead."""


@rule("EVAL002", severity="sev2", needs=[microbench_score], unit="score")
def benchmark_regression(
    score: Series,
    *,
    min_relative_fall: float = 0.1,
    k: float = 4.0,
    history: int = 4,
    min_points: int = 2,
    recovery_fraction: float = 0.9,
    min_over_usual: float = 2.0,
) -> Iterator[Hit | Skip]:
    """A small benchmark falls back.

    ## What it checks
    The rule compares each score with its best so far (M58, SEV2-2).

    - Scores are judged from `history` values on.
    - A score has fallen where it is lower than its best by `min_relative_fall` of that, and by `k` robust deviations of its own
      steps since it left its lowest tenth.
    - A fall must be `min_over_usual` times as large as each earlier one of which `recovery_fraction` was won back.
    - A fall by less than a hundredth of what a share can be (0.01, or 1 of a percentage) does not count.
    - A fall counts at `min_points` evaluations in a row, or at the last one: sev2.
    - A fall is a note where `recovery_fraction` of what was lost is won back later.
    ## Why it matters
    The loss may go on falling while an ability is lost: data, context or harness changed.
    ## False alarms
    Some scores are left out, and some falls pass:

    - Small benchmarks are noisy: their own steps say how much.
    - A score that is better when low, by its name, is left out.
    - The return of an episode has its own rule (return_lost).
    - A score that goes to and fro between none and all, as of single samples, is left out.
    - A rate that is raised anew, as at a warm restart, costs every score for a while, and all of it comes back.
    """
    single = {name for column, name in enumerate(score.labels) if _is_of_single_samples(score.finite_points(column)[1])}
    score = score.only(lambda name: not EPISODE_RETURN.search(name) and not LESS_IS_BETTER.search(name) and name not in single)
    if not score.labels:
        yield Skip("not_applicable", "none of the scores is a mean of which more is known to be better")
        return
    if score.points <= history:
        yield Skip("too_few_points", f"{score.points} values of microbench_score; more than {history} are needed")
        return
    best = np.fmax.accumulate(np.where(score.finite, score.values, np.nan), axis=0)
    noise = np.array([_noise(_since_it_rose(score.finite_points(column)[1])) for column in range(len(score.labels))])
    if score.points >= 2 * MIN_TREND_POINTS:  # the best of many noisy values is luck
        score = replace(score, values=_smoothed(score.values))
        best = np.fmax.accumulate(np.where(score.finite, score.values, np.nan), axis=0)
    usual = np.column_stack([_largest_fall_won_back(column, recovery_fraction) for column in score.values.T])
    least = np.maximum(k * noise, _least_fall(score.values))
    limits = np.maximum(np.maximum(min_relative_fall * np.abs(best), least), min_over_usual * usual)
    fallen = (best - score.values > limits) & (np.arange(len(score.steps)) >= history)[:, None]
    for span in spans(score, fallen):
        if span.points >= min_points or span.last == int(score.steps[-1]):
            row = int(span.rows[0])
            is_back = _is_made_good(score, span, float(best[row, span.column]), recovery_fraction)
            yield Hit.over(
                span,
                "note" if is_back else "sev2",
                "{where} scores {value:.4g}, after {limit:.4g} at its best" + (", and is back since" if is_back else ""),
                badness=best - score.values,
                value=score.values,
                limit=float(best[row, span.column]),
            )


def _is_of_single_samples(values: Floats, *, min_flips: int = 4) -> bool:
    """Tell whether a score is always none or all and changes often: it was measured on single samples.

    >>> _is_of_single_samples(np.array([0, 1, 0, 0, 1, 0.0])), _is_of_single_samples(np.array([0, 0.9, 0.8, 0, 0.9, 0]))
    (True, False)
    """
    return set(values.tolist()) in ({0.0, 1.0}, {0.0, 100.0}) and int((np.diff(values) != 0).sum()) >= min_flips


def _since_it_rose(values: Floats, *, lowest_share: float = 0.1) -> Floats:
    """Return the values since a score left the lowest tenth of its range: one that stands at nothing has no noise.

    >>> _since_it_rose(np.array([*[0.0] * 12, 0.05, 0.6, 0.0, 0.9]))
    array([0.6, 0. , 0.9])
    """
    if len(values) < MIN_TREND_POINTS:
        return values
    risen = values > values.min() + lowest_share * np.ptp(values)
    return values[int(np.argmax(risen)) :] if risen.any() else values


def _least_fall(values: Floats) -> float:
    """Return a hundredth of the largest value that a share or a percentage can have; 0 for scores of another scale.

    >>> [_least_fall(np.array([0.0, best])) for best in (0.3, 3.0, 30.0, 300.0)]
    [0.01, 0.0, 1.0, 0.0]
    """
    largest, least = float(np.nanmax(values, initial=-np.inf)), float(np.nanmin(values, initial=np.inf))
    if least < 0:
        return 0.0
    return 0.01 if largest <= 1 else 1.0 if 10 < largest <= 100 else 0.0


def _largest_fall_won_back(values: Floats, share: float) -> Floats:
    """Return, for each value, the largest fall below the best before it of which `share` was won back, shape (T,).

    >>> _largest_fall_won_back(np.array([1.0, 3.0, 2.0, 3.0, 1.0, 0.0]), 0.9)
    array([0., 0., 0., 1., 1., 1.])
    """
    best, lowest, largest = -np.inf, np.inf, 0.0
    usual = np.zeros(len(values))
    for row, value in enumerate(values.tolist()):
        if value >= best - (1 - share) * (best - lowest) and lowest < best:  # NaN is no score
            largest, lowest = max(largest, best - lowest), np.inf
        if value >= best:
            best, lowest = value, np.inf
        elif value < lowest:
            lowest = value
        usual[row] = largest
    return usual


def _is_made_good(score: Series, span: Span, best: float, share: float) -> bool:
    """Tell whether a later score regains a share of what a fall had lost at its worst."""
    worst = float(score.values[span.rows, span.column].min())
    later = score.values[score.steps > span.last, span.column]
    return bool((later >= best - (1 - share) * (best - worst)).any())  # NaN is no score


def _noise(values: Floats) -> float:
    """Return the noise of one value, from the robust deviation of the steps between values; with few values, from differences."""
    if len(values) < MIN_TREND_POINTS:
        return float(np.nan_to_num(difference_noise(values)))
    steps = np.diff(values)
    return MAD_TO_SIGMA * median(np.abs(steps - median(steps))) / float(np.sqrt(2)) if len(steps) else 0.0


def _smoothed(values: Floats) -> Floats:
    """Return the median of each value and the four before it, as far as they are known, shape (T, P)."""
    padded = np.concatenate([np.full((4, values.shape[1]), np.nan), values])
    windows = np.lib.stride_tricks.sliding_window_view(padded, 5, axis=0)
    known = np.isfinite(windows).any(axis=-1)
    medians = np.nanmedian(np.where(known[..., None], windows, 0.0), axis=-1)
    return np.where(np.isfinite(values), medians, np.nan)
