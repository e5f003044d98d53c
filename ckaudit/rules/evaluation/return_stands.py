"""EVAL006: the return of a policy never rises above what it was at first."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.report import Severity
from ckaudit.contract.schema.score_names import EPISODE_RETURN, SUCCESS_RATE
from ckaudit.metrics.evaluation import microbench_score
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.returns import PARTS, Course, course_of, is_at_most, is_of_equals, what_is_lost
from ckaudit.run.series import Floats, Series, Steps


@rule("EVAL006", severity="sev2", needs=[], wants=[microbench_score], unit="1")
def return_stands(
    score: Series | None,
    *,
    max_gain: float = 0.1,
    max_best: float = 0.2,
    max_at_most: float = 0.2,
    min_points: int = 50,
    min_sure: int = 300,
    max_late_start: float = 10.0,
) -> Iterator[Hit | Skip]:
    """The return of a policy never rises above what it was at first.

    ## What it checks
    The rule takes scores that are named as the return of an episode, from `min_points` values on. Gains are measured against the
    spread, the distance between the tenth and the ninetieth percentile of all returns. All of these hold:

    - The mean of the last third exceeds that of the first by no more than two standard errors, and even two standard errors more
      would be no more than `max_gain` of the spread.
    - The better half of the time after the first third exceeds the first third by no more than `max_best` of the spread.
    - No other return and no rate of success of the run has risen.

    With fewer returns than `min_sure`, in which a policy may still try this and that, or with noisier ones, a mean that has not
    risen by one standard error is a note.
    ## Why it matters
    Nothing that the policy has learnt shows in what it is trained for. The signal may never reach it, or exploration may not find
    what is better.
    ## False alarms
    Some returns rightly stand, or cannot be judged:

    - A policy that has learnt already stands at the most there is: where `max_at_most` of the returns lie within a fiftieth of
      the range below the highest, nothing is said. A log that begins after more than `max_late_start` of its usual distances
      between two returns may begin with a trained policy: a note.
    - Two players that are the same policy win as often as they lose: returns around 0 whose extremes are opposite are left out.
    - A curriculum that makes the task harder as the policy gets better hides what it learns.
    - A return that is lost, or never differs, has its own rule (return_lost, score_stands). One that differs only now and then
      has no spread, and is not judged.
    """
    known = {} if score is None else {name: score.finite_points(place) for place, name in enumerate(score.labels)}
    returns = {name: points for name, points in known.items() if EPISODE_RETURN.search(name)}
    if not returns:
        yield Skip("not_applicable", "no score is named as the return of an episode")
        return
    if (points := max(len(values) for _, values in returns.values())) < min_points:
        yield Skip("too_few_points", f"{points} returns; {min_points} are needed")
        return
    others = [values for name, (_, values) in known.items() if name in returns or SUCCESS_RATE.search(name)]
    courses = [course_of(values) for values in others if len(values) >= PARTS[0]]
    if any(course.has_risen for course in courses):
        return
    for name, (steps, values) in returns.items():
        if (
            len(values) < min_points
            or is_at_most(values, max_at_most)
            or is_of_equals(values)
            or what_is_lost(values) is not None
        ):
            continue
        severity = _severity(course_of(values), max_gain, max_best)
        if severity is not None:
            is_early = len(values) < min_sure or _begins_late(steps, max_late_start)
            yield _hit(name, steps, values, "note" if is_early else severity)


def _hit(name: str, steps: Steps, values: Floats, severity: Severity) -> Hit:
    course = course_of(values)
    text = (
        f"{{where}} is {{value:.4g}} in the last third of {len(values)} returns, and was {{limit:.4g}} in the first: it has not "
    )
    text += "risen" if severity == "sev2" else "risen by more than chance would do"
    return Hit.at(steps, severity, text, where=name, value=course.last, limit=course.first, worst=-1)


def _severity(course: Course, max_gain: float, max_best: float) -> Severity | None:
    """Return how sure it is that a return stands; None: it has risen, or it has no spread to measure a gain by."""
    gain = course.last - course.first
    if course.spread <= 0:
        return None
    is_sure = gain + 2 * course.error <= max_gain * course.spread and course.best - course.first <= max_best * course.spread
    return "sev2" if is_sure else "note" if gain <= course.error else None


def _begins_late(steps: Steps, max_late_start: float) -> bool:
    """Tell whether the first step is far from the beginning, measured by the usual distance of two steps."""
    return bool(steps[0] > max_late_start * max(1.0, float(np.median(np.diff(steps)))))
