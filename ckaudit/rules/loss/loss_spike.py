"""LOSS001: the loss jumps out of its own noise."""

from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.loss import HARD_BATCH, OPENING, stays_solved, train_loss_raw, untrained_loss
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.spikes import grad_norm_excess, log_excess_at, loss_excess, loss_over_median
from ckaudit.metrics.weights import weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, true_stretches
from ckaudit.run.blocks import by_blocks
from ckaudit.run.medians import median
from ckaudit.run.negligible_changes import SOLVED
from ckaudit.run.robust import ENOUGH_FOR_NOISE, begins_at_zero, is_scatter
from ckaudit.run.run_facts import TARGET_MOVES, target_moves, why_not_judged_as_loss
from ckaudit.run.series import Floats, Mask, Series, Steps
from ckaudit.run.spikes import Incident, as_one_of_many, cluster_around, incidents, passing_peaks, recovers_soon

SPIKE_LEAD_STEPS, LED_JUMP_RATIO = 3, 1.25
"""Before an unstable step the gradient norm is flagged: a flag in the three steps before makes a lower jump an incident."""

MIN_HEIGHT_SHARE = 0.02
"""Least height of an event, as a share of the first losses; where the task is solved, `HARD_BATCH` holds instead."""

MIN_TIMES_BEYOND, TAIL_POINTS = 3.0, 200
"""An event stands out three times as far as 98 % of the points before it; the rule's docstring has what was measured."""

RESTART_RATIO, BACK_SHARE = 2.0, 0.5
"""A learning rate that is doubled is a restart; an incident is over once half of its jump is gone."""

MIN_LOG_SHARE = 0.5
"""Share of `k` by which a point must stand out on a logarithmic scale: noise of half the level reaches no more."""

MIN_POINTS_BACK = 3
"""Fewest points after an event that show it is over where the record ends soon; all of them must be low again."""

MIN_LASTING_POINTS = 5
"""Fewest points of an incident that is not back: in a log of every thousandth step, two points span `recovery_steps` already."""

EARLY_JUMP, GRAVE_RATIO = 0.25, 2.0
"""In the first window a jump of a quarter of the first loss counts, and one to twice the losses before is grave."""

MAX_LONE_SHARE, MAX_LONE_SHARE_OF_FEW = 0.01, 0.05
"""Up to this share of a log's points, and of a short log's, jumps that are back at once are single batches."""

MIN_PART_SHARE = 0.5
"""Share of the least height from which a flag belongs to a jump: lower flags are not where the jump began."""

FIRST_STEPS, OPENING_STEPS = 0.1, 200
"""First steps of a run, as a share; least steps of its opening, where a peak is judged as an early jump only."""


@rule(
    "LOSS001",
    severity="sev1",
    needs=[train_loss_raw],
    wants=[loss_excess, loss_over_median, grad_norm_excess, learning_rate, FACTS, weight_rms],
    unit="1",
)
def loss_spike(
    loss: Series,
    excess: Series | None,
    relative: Series | None,
    gradient: Series | None,
    rate: Series | None,
    facts: Manifest | None,
    sizes: Series | None,
    *,
    k: float = 6.0,
    jump_ratio: float = 1.5,
    window: int = 50,
    min_incidents: int = 3,
    within_steps: int = 1000,
    recovery_steps: int = 200,
) -> Iterator[Hit | Skip]:
    """The loss jumps out of its own noise.

    ## What it checks
    The rule flags points of the loss that stand out of its noise, and groups the flags into incidents.

    - A point is flagged that exceeds the median of the previous `window` points by `k` robust deviations (F15; a healthy 124M run
      has isolated flags at 6).
    - On a log scale the point exceeds it by half of `k`, or by `k` where it stands alone: noise grows with the level.
    - Flags are an incident where three of five points in a row are flagged, or the loss is over `jump_ratio` times the median
      (1.25, if the gradient norm was flagged in the 3 steps before), and one is higher by 0.02 of the first losses.
    - An incident ends after half of `window` points without flags, and not before half of the jump is given back: a loss that
      stays up stops standing out, and is not back.
    - An incident is sev1 where `min_incidents` that last three points lie within `within_steps` steps, or it is not back after
      `recovery_steps` steps and five points. One that recovered is sev2.
    - Spikes of one incident count one by one where a fifth of `window` points lies between them.
    - Isolated flags are a note. So is an incident of points that stand alone, are back at the next point and stay below a quarter
      over the first losses: a batch costs that, and the weights took no harm.
    - Such incidents count in full where `min_incidents` lie within `within_steps` steps, and 1 % of points there jump (5 % of a
      short log).
    - In the first `window` points, a quarter of the first loss over the lowest so far is a jump: sev2 over twice the losses
      before, else a note. Within `k` deviations of the scatter of those points it is a note.
    - An early jump is a note, too, where half of it is gone within 5 % of all steps, and the loss ends a quarter below its first.
    ## Why it matters
    A spike that recovers wastes steps, and warns that the next one may not recover (TRI-2, D4.1).
    ## False alarms
    Some jumps come from batches or from a planned change:

    - Below a tenth of the first losses, a batch's loss is that of the few examples that are still wrong: it must rise by a
      quarter of the first losses. In a log of few points single ones are notes, however many.
    - Rounded logs have a floor under their deviation. Where batches differ much, an incident stands out three times as far as 98
      % of the 200 points before it, or is such a batch (lab: heavy tails reach 2.5, once 4.1; ill runs at least 3.3).
    - Where the gradient norm is calm throughout, the 200 points after the incident count as well.
    - A learning rate set back to a level that it had before (twice what it was) is a planned warm restart: a note.
    - A spike that recovers while weights change that run.json says are not trained is a note: a copy that makes targets was
      renewed.
    """
    why = why_not_judged_as_loss(facts, loss.finite_points()[1])
    if why or begins_at_zero(loss.finite_points()[1]):
        yield Skip("not_applicable", why or "the loss begins at zero, as that of a policy")
        return
    if excess is None or relative is None:
        yield from _peaks(loss, np.flatnonzero(loss.finite[:, 0]))
        if loss.points >= ENOUGH_FOR_NOISE:
            return
        yield Skip("too_few_points", f"{loss.points} points of the loss; more than {window} are needed")
        return
    moves = target_moves(sizes, facts)
    yield from (_softened(hit) if moves and hit.severity == "sev2" else hit for hit in _early(loss, window, k))
    judged = _judged_incidents(loss.values[:, 0], excess, relative.values[:, 0], gradient, k, jump_ratio, window)
    jumps = [incident for incident in judged if incident.is_incident]
    values, over = loss.values[:, 0], relative.values[:, 0]
    back = {id(incident): _until_back(incident, values, over, window // 2) for incident in jumps}
    repeated = _repeated(excess.steps, jumps, min_incidents, within_steps)
    serious = [
        incident
        for incident, is_one_of_many in zip(jumps, repeated, strict=True)
        if (is_one_of_many or not _is_a_batch_of_its_own(incident, back[id(incident)], values))
        and not stays_solved(loss, int(loss.steps[back[id(incident)].first]), int(loss.steps[back[id(incident)].last]))
    ]
    crowded = _crowded(excess.steps, serious, min_incidents, within_steps, apart=window // 5)
    for incident, close in zip(serious, crowded, strict=True):
        restarted = _restarted(rate, int(excess.steps[incident.first]), window)
        whole = incident if restarted else back[id(incident)]
        hit = _hit(whole, excess.steps, values, over, close=close, patience=recovery_steps)
        small = hit.value is not None and hit.limit is not None and hit.value <= jump_ratio * hit.limit
        if restarted and (small or (hit.severity == "sev2" and not incident.is_open)):
            hit = replace(hit, severity="note", message=hit.message + ", after a restart of the learning rate")
        elif hit.severity == "sev2" and moves:
            hit = _softened(hit)
        yield hit
    reported = {*map(id, serious)}
    if alone := [int(excess.steps[incident.first]) for incident in judged if id(incident) not in reported]:
        yield _isolated(alone)


def _isolated(steps: list[int]) -> Hit:
    """Return the note on points that stand out alone."""
    one = "1 isolated point of the loss stands out of its noise and is gone at once"
    many = f"{len(steps)} isolated points of the loss stand out of its noise and are gone at once"
    return Hit.at(steps, "note", one if len(steps) == 1 else many, where="loss")


def _softened(hit: Hit) -> Hit:
    return replace(hit, severity="note", message=f"{hit.message}; {TARGET_MOVES}")


def _judged_incidents(
    loss: Floats, excess: Series, relative: Floats, gradient: Series | None, k: float, jump_ratio: float, window: int
) -> list[Incident]:
    """Return the incidents among the flagged points; those that only batches make are marked as isolated."""
    flags = np.nan_to_num(excess.values[:, 0], nan=0.0, posinf=np.inf) > k  # (T,)
    rows = np.flatnonzero(flags)
    by_logs = log_excess_at(loss, rows)
    flags[rows] = by_logs > k * MIN_LOG_SHARE
    strong = np.zeros_like(flags)
    strong[rows] = by_logs > k
    over = np.nan_to_num(relative, posinf=np.inf)
    strong &= (over > jump_ratio) | (over > LED_JUMP_RATIO) & _led(excess.steps, gradient, k)
    del over
    height = _height(loss, relative)
    candidates = [
        incident
        for incident in incidents(flags & (height > MIN_PART_SHARE), strong, quiet=window // 2)
        if (height[incident.first : incident.last + 1] >= 1).any() and np.isfinite(relative[incident.first])
    ]
    calm = _calm(excess.steps, gradient, candidates, k)
    return [
        as_one_of_many(
            incident, excess.values[:, 0], flags, beyond=MIN_TIMES_BEYOND, points=TAIL_POINTS, later=TAIL_POINTS if is_calm else 0
        )
        for incident, is_calm in zip(candidates, calm, strict=True)
    ]


def _is_a_batch_of_its_own(incident: Incident, whole: Incident, loss: Floats) -> bool:
    """Tell whether an incident's points stand alone, are back at once and cost little more than an untrained model."""
    peak = max(loss[row] if np.isfinite(loss[row]) else np.inf for row in incident.core)
    return (
        not incident.lasts
        and not whole.is_open
        and whole.last == incident.last
        and peak <= (1 + EARLY_JUMP) * untrained_loss(loss)
    )


def _repeated(steps: Steps, jumps: list[Incident], min_jumps: int, within: int) -> list[bool]:
    """Return whether each jump is one of at least `min_jumps` within so many steps, and those are 1 % of the points there."""
    starts = np.array([steps[incident.first] for incident in jumps], np.int64)
    near, points = (
        np.searchsorted(among, starts + within, side="left") - np.searchsorted(among, starts - within, side="right")
        for among in (starts, steps)
    )
    return [bool(count >= max(min_jumps, MAX_LONE_SHARE * total)) for count, total in zip(near, points, strict=True)]


def _early(loss: Series, window: int, k: float) -> Iterator[Hit]:
    """Yield the jump within the first `window` points, where no noise is known yet to compare it with."""
    rows = np.flatnonzero(loss.finite[:, 0])[:window]
    values = loss.values[rows, 0]
    if len(values) < 4 or values.min() < 0 or values[0] == 0:
        return
    yield from _peaks(loss, rows, after=max(OPENING_STEPS, OPENING * float(loss.steps[-1])))
    lowest = np.minimum.accumulate(running_medians(np.concatenate([np.full(2, values[:3].max()), values]), 3))
    high = np.flatnonzero(values[1:] > lowest[:-1] + EARLY_JUMP * values[0]) + 1
    if len(high):
        high = cluster_around(high, int(np.argmax(values[high])))
        worst = high[int(np.argmax(values[high]))]
        level, peak = float(lowest[worst - 1]), float(values[worst])
        is_grave = (
            peak > GRAVE_RATIO * max(values[0], median(values[: high[0]]))
            and not is_scatter(values, peak / level if level > 0 else np.inf, deviations=k)
            and not recovers_soon(*loss.finite_points(), int(loss.steps[rows[high[0]]]), level, peak)
        )
        is_at_start = loss.steps[rows[high[0]]] <= FIRST_STEPS * loss.steps[-1]
        yield Hit.at(
            loss.steps[rows[high]],
            "sev2" if is_grave else "note",
            f"the loss jumps to {{value:.4g}}{' in its first steps' if is_at_start else ''}, from {{limit:.4g}}",
            where="loss",
            value=peak,
            limit=level,
            worst=int(np.argmax(values[high])),
        )


def _peaks(loss: Series, rows: Steps, *, after: float = -1.0) -> Iterator[Hit]:
    """Yield the short stretches after a step that stand above the levels before and after them."""
    values = loss.values[rows, 0]
    peaks = passing_peaks(values)
    for first, last, level in peaks:
        worst = first + int(np.argmax(values[first : last + 1]))
        is_solved = level < SOLVED * values[0]  # the loss is that of the few rows which are still wrong
        height = (HARD_BATCH if is_solved else MIN_HEIGHT_SHARE) * values[0]
        if loss.steps[rows[first]] <= after or values[worst] - level < height:
            continue
        yield Hit.at(
            loss.steps[rows[first : last + 1]],
            "note"
            if first == last
            and (is_solved or len(peaks) < MAX_LONE_SHARE_OF_FEW * len(values))
            and values[worst] <= (1 + EARLY_JUMP) * values[0]
            else "sev2",
            "the loss jumps to {value:.4g} from {limit:.4g} and is back after " + f"{last - first + 1} of {len(values)}",
            where="loss",
            value=float(values[worst]),
            limit=level,
            worst=worst - first,
        )


def _height(loss: Floats, relative: Floats) -> Floats:
    """Return each point's height over its running median, in units of the least height; infinite where it is unknown."""
    start = untrained_loss(loss)

    def height_of(loss: Floats, relative: Floats) -> Floats:
        level = loss / relative
        height = (loss - level) / start / np.where(level < SOLVED * start, HARD_BATCH, MIN_HEIGHT_SHARE)
        return np.where(np.isnan(height), np.inf, height)

    with np.errstate(all="ignore"):
        return by_blocks(height_of, loss, relative)


def _restarted(rate: Series | None, step: int, window: int) -> bool:
    """Tell whether the learning rate was set up again, to no more than it had been, in the `window` points before a step."""
    if rate is None:
        return False
    before = rate.values[rate.finite[:, 0] & (rate.steps <= step), 0]
    recent, past = before[-window // 2 :], before[: -window // 2]
    return bool(
        len(past)
        and recent.max() >= RESTART_RATIO * recent.min()
        and past.max() * 1.01 >= recent.max()
        and recent[0] < recent.max()
    )


def _led(steps: Steps, gradient: Series | None, k: float) -> Mask:
    """Return which steps come shortly after a flagged gradient norm."""
    if gradient is None:
        return np.zeros(len(steps), bool)
    flagged = gradient.steps[np.nan_to_num(gradient.values[:, 0], posinf=np.inf) > k]

    def is_led(block: Steps) -> Mask:
        before = np.searchsorted(flagged, block, side="left")
        after = np.searchsorted(flagged, block - SPIKE_LEAD_STEPS, side="left")
        return np.asarray(before > after)

    return by_blocks(is_led, steps, dtype=bool)


def _calm(steps: Steps, gradient: Series | None, incidents: list[Incident], k: float) -> list[bool]:
    """Return whether each incident has a gradient norm that is never flagged: then data caused it, not updates."""
    if gradient is None:
        return [False] * len(incidents)
    values = gradient.values[:, 0]
    starts = np.searchsorted(gradient.steps, [steps[incident.first] for incident in incidents], side="left").tolist()
    ends = np.searchsorted(gradient.steps, [steps[incident.last] for incident in incidents], side="right").tolist()
    spans = [slice(start, end) for start, end in zip(starts, ends, strict=True)]
    return [bool(np.isfinite(values[inside]).any() and not (values[inside] > k).any()) for inside in spans]


def _until_back(incident: Incident, loss: Floats, relative: Floats, quiet: int) -> Incident:
    """Return an incident that lasts until the first `quiet` points whose median has given back `BACK_SHARE` of the jump."""
    level = loss[incident.first] / relative[incident.first]
    if not np.isfinite(level):
        return incident
    inside = loss[incident.first : incident.last + 1]
    limit = level + (1 - BACK_SHARE) * (np.max(inside[np.isfinite(inside)]) - level)
    if incident.is_open:  # the record ends soon after it: the points that there are decide
        left = loss[incident.last + 1 :]
        is_over = np.isfinite(left).sum() >= MIN_POINTS_BACK and bool((left[np.isfinite(left)] < limit).all())
        return replace(incident, is_open=not is_over)
    width = 2 * quiet
    while True:  # most are back in the first block: look no further in a long log than needed
        later = np.flatnonzero(np.isfinite(loss[incident.last + 1 : incident.last + 1 + width])) + incident.last + 1
        rows = later[: len(later) // quiet * quiet].reshape(-1, quiet)
        is_back = np.median(loss[rows], axis=1) < limit
        is_all = incident.last + 1 + width >= len(loss)
        if is_back.any():
            block = int(is_back.argmax())
            return incident if block == 0 else replace(incident, last=int(rows[block, 0]) - 1)
        if is_all:
            return replace(incident, last=len(loss) - 1, is_open=True) if len(rows) else incident
        width *= 4


def _crowded(steps: Steps, incidents: list[Incident], min_spikes: int, within: int, *, apart: int) -> list[bool]:
    """Return whether each lasting incident has a spike that is one of `min_spikes` within `within` steps.

    Spikes that follow each other closely are one incident; they count one by one where `apart` points lie between them.
    """
    lasting = [incident for incident in incidents if incident.lasts]
    cores = [np.sort([*incident.core]) for incident in lasting]
    spikes = [steps[core[np.append(True, np.diff(core) > apart)]] for core in cores]
    starts = np.concatenate(spikes) if spikes else np.empty(0)
    crowds = [
        any(((starts > start - within) & (starts < start + within)).sum() >= min_spikes for start in starts_of_incident)
        for starts_of_incident in spikes
    ]
    crowded = dict(zip(map(id, lasting), crowds, strict=True))
    return [crowded.get(id(incident), False) for incident in incidents]


def _is_back_within(incident: Incident, steps: Steps, loss: Floats, relative: Floats, patience: int) -> bool:
    """Tell whether three points in a row, soon after the first one of an incident, have given back `BACK_SHARE` of the jump."""
    level, soon = loss[incident.first] / relative[incident.first], steps[incident.first] + patience
    end = max(int(np.searchsorted(steps, soon, side="right")), incident.first + 1 + MIN_POINTS_BACK)
    inside = loss[incident.first : end]
    low = inside < level + (1 - BACK_SHARE) * (np.maximum.accumulate(inside) - level)
    return next(true_stretches(low, min_points=MIN_POINTS_BACK), None) is not None


def _hit(incident: Incident, steps: Steps, loss: Floats, relative: Floats, *, close: bool, patience: int) -> Hit:
    first, last = int(steps[incident.first]), int(steps[incident.last])
    inside = slice(incident.first, incident.last + 1)
    peak = incident.first + int(np.argmax(np.where(np.isfinite(loss[inside]), loss[inside], -np.inf)))
    lasts = last - first >= patience and incident.last - incident.first + 1 >= MIN_LASTING_POINTS
    long = lasts and not _is_back_within(incident, steps, loss, relative, patience)
    tail = (
        "then it is no number any more"
        if not np.isfinite(loss[incident.last + 1 : incident.last + 2]).all()
        else f"it is not back after {patience} steps"
        if long
        else "it is one of several"
        if close
        else "it has not come back yet"
        if incident.is_open
        else f"more than half of the jump is gone after {last - first + 1} steps"
    )
    return Hit(
        severity="sev1" if long or close else "sev2",
        where="loss",
        first=first,
        last=last,
        worst=int(steps[peak]),
        value=float(loss[peak]),
        limit=float(loss[incident.first] / relative[incident.first]),
        points=incident.last - incident.first + 1,
        message="the loss jumps to {value:.4g} from a median of {limit:.4g}; " + tail,
    )
