"""LOSS004: the loss climbs, or stays where it jumped to."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.loss import is_in_opening, loss_part, train_loss_raw, val_loss
from ckaudit.metrics.loss_function import explained_share
from ckaudit.metrics.optimizer import is_set_back, learning_rate
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.loss.overfitting import CARRIED
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, true_stretches
from ckaudit.run.medians import median
from ckaudit.run.negligible_changes import SOLVED, negligible_rise
from ckaudit.run.oscillation import oscillation
from ckaudit.run.rises import Rise, falls_from_each_jump, large_or_clear_rise, sustained_rise
from ckaudit.run.robust import MAD_TO_SIGMA, MEDIAN_STANDARD_ERROR_FACTOR, begins_at_zero, difference_noise, looks_like_a_score
from ckaudit.run.run_facts import TARGET_MOVES, is_known_to_be_a_loss, target_moves, why_loss_need_not_fall
from ckaudit.run.series import Floats, Series, Steps

MIN_POINTS = 3
"""Two points show no trend."""

LATE_DEVIATIONS = 2.5
"""Where a task is solved, a rise must exceed so many deviations of the noise: the little loss that is left differs by batch."""

NEAR_ZERO = 0.1
"""Share of its later depth below zero within which a loss begins at zero, as a policy's does; a density's begins far above."""

RECONSTRUCTION = "reconstruction"
"""The term of a loss that compares output with input; the other terms shape the code in between."""

POINTS_PER_BLOCK = 10
"""A median of fewer points is no level of a long log."""


@rule(
    "LOSS004",
    severity="sev1",
    needs=[train_loss_raw],
    wants=[learning_rate, weight_rms, FACTS, explained_share, val_loss, loss_part],
    unit="nats/token",
)
def loss_rises(
    loss: Series,
    rate: Series | None,
    sizes: Series | None,
    facts: Manifest | None,
    explained: Series | None,
    val: Series | None,
    terms: Series | None,
    *,
    parts: int = 40,
    min_climbs: int = 4,
    min_rise: float = 0.1,
    min_deviations: float = 6.0,
    sev1_share: float = 0.25,
    sev1_deviations: float = 10.0,
) -> Iterator[Hit | Skip]:
    """The loss climbs, or stays where it jumped to.

    ## What it checks
    From three points on, the rule asks whether the loss ends above its own lowest level (sustained_rise). In a long log it also
    looks for climbs.

    - The loss ends above its lowest level by more than its noise allows, and by more than `min_rise` of that level. Where the
      rise stands out further, half of `min_rise` is enough.
    - Such a rise is sev1 where it comes to `sev1_share` of the level and `sev1_deviations` standard errors, over eight points or
      more, and takes back `min_rise` of what had been learnt. Otherwise it is sev2.
    - With fewer than eight points the noise is unknown: the size of the rise decides, and the finding says so.
    - A long log is also cut into `parts` equal parts, whose medians are compared. In a climb, at least `min_climbs` of them in a
      row are each higher than the last.
    - A climb counts where it rises by more than `min_rise` of the level that it began at, and by more than `min_deviations`
      robust deviations of such medians.
    - A climb is sev1 where half of it is not given back at the end (D4.1: no recovery), else sev2.
    - A rise by less than 2 % of what the loss has fallen from its first point does not count.
    - A rise from a level below a tenth of the first loss does not count within 2.5 deviations of the noise of the second half,
      nor where it takes back less than 5 % of the fall.
    ## Why it matters
    A spike comes from one batch. A climb comes from the training itself, and goes on until somebody stops it.
    ## False alarms
    Some rises are only noted:

    - The learning rate was set back to a level that it had before: a planned restart, a note.
    - The loss jumps and then falls on by a fifth of the jump, as where the task is made harder on purpose: a note. Where it jumps
      again, it falls on after each jump.
    - Such a jump stays sev2 where less than 5 % of the later fall shows on held-out data: the model learns something else.
    - Such a jump stays sev2 where no later evaluation on held-out data, which nobody makes harder, is as good as the best before.
    - Such a jump stays sev2 where the loss jumps to what an untrained model had, or higher, and no held-out loss is known, or the
      held-out loss follows the jump: a harder task keeps some of what was learnt.
    - A curve that rises from its first point on and levels off, between 0 and 1, between 0 and 100 or from below zero, is an
      accuracy or a reward logged as a loss: a note says so.
    - A curve is judged as a loss all the same where it is known to be of tokens, where its function was seen, or where a trainer
      logs what it minimises.
    - Where weights move that are not trained, as those of a teacher that follows the model, the target of the loss moves: a note.
    - A loss that begins at zero is that of a policy: a note. So is one that begins near zero and falls below it, unless it ends
      further above its beginning than it had come below.
    - The model leaves no larger share of its targets unexplained than before the rise: the targets vary more, as those that a
      critic makes itself (a note).
    - The rise is sev2, and the held-out loss falls from evaluation to evaluation meanwhile: batches that are mixed or augmented
      are harder at times (a note).
    - A climb came back within the first 5 % of all steps, as while the rate warms up: a note, for it has cost no more.
    """
    steps, values = loss.finite_points()
    if len(values) < MIN_POINTS:
        yield Skip("too_few_points", f"{len(values)} finite points of the loss; {MIN_POINTS} are needed")
        return
    if why := why_loss_need_not_fall(facts):
        yield Skip("not_applicable", why)
        return
    if not is_known_to_be_a_loss(facts, explained) and looks_like_a_score(values):
        yield _score(steps, values)
        return
    why = why_rise_is_harmless(values, sizes, facts) or why_other_terms_rise(terms, values)
    first = float(values[0])
    climbing = [
        hit
        for hit in _in_blocks(steps, values, parts, min_climbs, min_rise, min_deviations)
        if (hit.value or 0.0) - (hit.limit or 0.0) > negligible_rise(hit.limit or 0.0, first)
    ]
    yield from (
        _softened(hit, why or _why_targets_explain(explained, hit) or _why_evaluations_fall(val, hit) or _why_opening(hit, steps))
        for hit in climbing
    )
    if any(hit.severity == "sev1" for hit in climbing) or (rise := _rise(values, min_rise, alone=not climbing)) is None:
        return
    noise = LATE_DEVIATIONS * _late_noise(values) if rise.low < SOLVED * first else 0.0
    if rise.end - rise.low <= max(negligible_rise(rise.low, first), noise):
        return
    wave = oscillation(values)
    if wave is not None and rise.end <= 1.1 * wave.high:
        return  # it ends on the way up of a wave, which has a rule of its own
    is_severe = rise.noise_is_known and rise.share >= sev1_share and rise.deviations >= sev1_deviations
    is_severe = is_severe and rise.end - rise.low >= min_rise * (first - rise.low)
    restarted = is_set_back(rate, int(steps[rise.lowest]), int(steps[-1]))
    hit = _stays(steps, values, rise, val, is_severe=is_severe, restarted=restarted)
    yield _softened(hit, why or _why_targets_explain(explained, hit) or _why_evaluations_fall(val, hit))


def why_rise_is_harmless(values: Floats, sizes: Series | None, facts: Manifest | None) -> str:
    """Return why a rise of this loss is no illness; "" where it may be one."""
    if target_moves(sizes, facts):
        return TARGET_MOVES
    if begins_at_zero(values):
        return "it began at zero, as of a policy, and nobody knows what less of it is worth"
    begin, lowest = median(values[:MIN_POINTS]), float(values.min())
    if begin < NEAR_ZERO * -lowest and median(values[-MIN_POINTS:]) <= begin + (begin - lowest):
        return "it began below zero or near it, as of a policy or a critic, and nobody knows what less of it is worth"
    return ""


def why_other_terms_rise(terms: Series | None, values: Floats, *, max_rise: float = 0.05) -> str:
    """Return that other terms make a loss rise that stays below its first, while the reconstruction does not rise; else ""."""
    if terms is None or len(terms.labels) < 2 or RECONSTRUCTION not in terms.places:
        return ""
    if len(values) < MIN_POINTS or values[-MIN_POINTS:].max() >= values[0]:
        return ""
    _, restored = terms.finite_points(terms.places[RECONSTRUCTION])
    if len(restored) < MIN_POINTS or sustained_rise(restored, min_share=max_rise) is not None:
        return ""
    return "the reconstruction does not rise: other terms of the loss do, which are weighed more, or grow with the code"


def _late_noise(values: Floats, *, min_points: int = 5) -> float:
    """Return the standard deviation of the noise of the second half; 0 where there are too few points."""
    late = values[len(values) // 2 :]
    return difference_noise(late) if len(late) >= min_points else 0.0


def _why_targets_explain(explained: Series | None, hit: Hit, *, min_checkpoints: int = 3, max_growth: float = 1.1) -> str:
    """Return that the targets vary more, where the unexplained share of them is no larger in a rise than before it; else ""."""
    if explained is None or hit.first is None or hit.last is None:
        return ""
    shares = explained.recorded_rows()
    left = 1 - shares.values[:, 0]
    before = left[shares.steps < hit.first][-min_checkpoints:]
    within = left[(shares.steps >= hit.first) & (shares.steps <= hit.last)][-min_checkpoints:]
    if min(len(before), len(within)) < min_checkpoints or median(within) > max_growth * before.min():
        return ""
    return "its targets vary more, and the model leaves no more of them unexplained than before"


def _softened(hit: Hit, why: str) -> Hit:
    return replace(hit, severity="note", message=f"{hit.message}; {why}") if why else hit


def _why_opening(hit: Hit, steps: Steps) -> str:
    """Return that a climb that came back was over in the opening of the run; "" where it was not."""
    return "it was over in the opening of the run" if hit.severity == "sev2" and is_in_opening(hit.last, steps) else ""


def _why_evaluations_fall(val: Series | None, hit: Hit) -> str:
    """Return why a small rise, or a climb that came back, is harmless: the held-out loss falls all the while; else ""."""
    if val is None or hit.severity != "sev2" or hit.first is None or hit.last is None:
        return ""
    known = val.finite_in(0)
    before = val.values[known & (val.steps < hit.first), 0][-1:]
    within = val.values[known & (val.steps >= hit.first) & (val.steps <= hit.last), 0]
    falls = len(before) and len(within) and within.max() < before[0] and (np.diff(within) < 0).all()
    return "the held-out loss falls all the while: the batches were harder" if falls else ""


def _rise(values: Floats, min_rise: float, *, alone: bool) -> Rise | None:
    """Return how the loss ends above its lowest level; where no climb was found, half of `min_rise` may do."""
    return (
        large_or_clear_rise(values, large=min_rise, small=min_rise / 2) if alone else sustained_rise(values, min_share=min_rise)
    )


def _score(steps: Steps, values: Floats) -> Hit:
    """Return the note on a curve that is logged as the loss and is a score."""
    return Hit.at(
        steps,
        "note",
        "what is logged as the loss rises from {limit:.4g} to {value:.4g} and levels off, "
        "as an accuracy or a reward does: it is not judged as a loss",
        where="loss",
        value=float(values[-1]),
        limit=float(values[0]),
    )


def _stays(steps: Steps, values: Floats, rise: Rise, val: Series | None, *, is_severe: bool, restarted: bool) -> Hit:
    """Return the hit of a loss that ends above its lowest level."""
    worst = int(np.argmax(values[rise.onset :]))
    few = "" if rise.noise_is_known else f", in the {len(values)} points that there are"
    eased = falls_from_each_jump(values[rise.onset :], rise)
    severity: Severity = "sev1" if is_severe else "sev2"
    reason = ""
    if restarted:
        reason, severity = "; the learning rate had been set back", "note"
    elif eased and _learns_something_else(steps, values, rise, val):
        reason, severity = "; it falls on from there, and nothing of it carries over", "sev2"
    elif eased and _forgets_all(steps, values, rise, val):
        reason, severity = "; it falls on from there, but what had been learnt was lost", "sev2"
    elif eased and _held_out_has_risen(steps, rise, val):
        reason, severity = "; it falls on from there, and the held-out loss has risen with it", "sev2"
    elif eased:
        reason, severity = "; it falls on from there, as where a task is made harder", "note"
    ending = "has not come back" if eased else "swings between the two" if _swings(values, rise) else "stays there"
    return Hit.at(
        steps[rise.onset :],
        severity,
        "the loss rises to {value:.4g} from {limit:.4g} and " + ending + few + reason,
        where="loss",
        value=float(values[rise.onset + worst]),
        limit=rise.low,
        worst=worst,
    )


def _swings(values: Floats, rise: Rise, *, near: float = 0.2, min_turns: int = 4) -> bool:
    """Tell whether the loss alternates between about the level that it rose from and the upper half of its rise."""
    height = (values[rise.onset :] - rise.low) / (values[rise.onset :].max() - rise.low)
    ends = height[(height < near) | (height > 0.5)] > 0.5
    return int(np.count_nonzero(ends[1:] != ends[:-1])) >= min_turns


def _learns_something_else(steps: Steps, values: Floats, rise: Rise, val: Series | None) -> bool:
    """Tell whether the loss falls on after a jump, while the held-out loss, from its first evaluation after it on, does not."""
    worst = rise.onset + int(np.argmax(values[rise.onset :]))
    if val is None or (known := val.finite_in(0) & (val.steps >= steps[worst])).sum() < 2:
        return False
    held_out, fall = val.values[known, 0], float(values[worst] - median(values[-MIN_POINTS:]))
    return fall > 0 and float(held_out[0] - held_out[-1]) < CARRIED * fall


def _held_out_has_risen(steps: Steps, rise: Rise, val: Series | None) -> bool:
    """Tell whether no evaluation since the rise is as good as the best one before: held-out rows do not become harder."""
    if val is None:
        return False
    known, since = val.finite_in(0), val.steps >= steps[rise.onset]
    before, after = val.values[known & ~since, 0], val.values[known & since, 0]
    return len(after) > 1 and bool(after.min() > before.min(initial=np.inf))


def _forgets_all(steps: Steps, values: Floats, rise: Rise, val: Series | None) -> bool:
    """Tell whether the loss jumps to its first level, or higher, and no held-out loss shows that the model kept anything.

    Two later evaluations show it, unless the first of them is nearer to the first level than to the lowest one before the jump.
    """
    worst = rise.onset + int(np.argmax(values[rise.onset :]))
    untrained = median(values[:MIN_POINTS])
    if median(values[worst : worst + MIN_POINTS]) < untrained:
        return False
    known = val.finite_in(0) if val is not None else np.zeros(0, bool)
    if val is None or (known & (val.steps >= steps[worst])).sum() < 2:
        return True
    before = val.values[known & (val.steps < steps[rise.onset]), 0]
    after = val.values[known & (val.steps >= steps[worst]), 0]
    return bool(len(before)) and before.min() < untrained and 2 * after[0] > before.min() + untrained


def _in_blocks(steps: Steps, values: Floats, blocks: int, climbs: int, min_rise: float, min_deviations: float) -> Iterator[Hit]:
    """Yield the climbs of a long log, with those that were given back."""
    width = max(POINTS_PER_BLOCK, len(values) // blocks)
    count = len(values) // width
    if count <= climbs:
        return
    table = values[len(values) - count * width :].reshape(count, width)  # (B, W)
    steps = steps[len(values) - count * width :].reshape(count, width)
    middle = np.median(table, axis=1)
    apart = np.subtract(table, middle[:, None])
    by_points = MAD_TO_SIGMA * median(np.abs(apart, out=apart), overwrite=True) * MEDIAN_STANDARD_ERROR_FACTOR / np.sqrt(width)
    noise = max(by_points, difference_noise(middle))  # points of a moving average are correlated, and so are their blocks
    for start, end in true_stretches(np.diff(middle) > 0, min_points=climbs):
        risen = middle[end] - middle[start]
        if risen <= max(min_rise * abs(middle[start]), min_deviations * noise):
            continue
        stays = middle[-1] > middle[start] + risen / 2
        yield Hit(
            severity="sev1" if stays else "sev2",
            where="loss",
            first=int(steps[start + 1, 0]),
            last=int(steps[-1 if stays else end, -1]),
            worst=int(steps[end, width // 2]),
            value=float(middle[end]),
            limit=float(middle[start]),
            points=(end - start) * width,
            message="the loss climbs to {value:.4g} from {limit:.4g}" + ("" if stays else f"; it ends at {middle[-1]:.4g}"),
        )
