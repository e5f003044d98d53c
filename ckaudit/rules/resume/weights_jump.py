"""RESUME003: weights change more than the optimizer can move them."""

from collections.abc import Iterable, Iterator

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.gradients import grad_global_norm, gradient_norm
from ckaudit.metrics.movement import weight_decay_to_update
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.pairs import together
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import relative_movement, update_norm, weight_norm, weight_rms, weight_statistics_change
from ckaudit.metrics.words import optimizer_adapts, tensors_written
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.cancelled_gradients import cancelled
from ckaudit.run.medians import median
from ckaudit.run.run_facts import is_adaptive, is_plain_descent
from ckaudit.run.series import Floats, Mask, Series, Steps, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import table_of
from ckaudit.run.update_reach import (
    MAX_REACH,
    UpdateReach,
    adaptive_reach,
    plain_descent_reach,
    rate_times_largest_gradient,
    rates_at,
)

WINDOW = 10
"""Checkpoints whose median is the usual update: more of them would reach back to another learning rate."""

UNKNOWN_OPTIMIZER_FACTOR = 5.0
"""Where the optimizer is not known, an update that all tensors share must exceed its past by this many times `min_ratio`."""

MIN_TIMES_FASTER = 2.0
"""Pace of the median tensor over its earlier one from which a whole model moves faster: the rate was raised or the loss broke."""

MIN_ALIKE = 3
"""Where this many tensors of one name are written to at several steps, a program does it: memory fails at one place."""

UPDATES = "its updates do not add up to that"


@rule(
    "RESUME003",
    severity="sev0",
    needs=[],
    wants=[
        update_norm,
        weight_norm,
        relative_movement,
        learning_rate,
        grad_global_norm,
        optimizer_adapts,
        FACTS,
        weight_statistics_change,
        weight_rms,
        tensors_written,
        weight_decay_to_update,
        gradient_norm,
    ],
    unit="1",
)
def weights_jump(
    moved: Series | None,
    size: Series | None,
    away: Series | None,
    rate: Series | None,
    gradient: Series | None,
    adapts: Series | None,
    facts: Manifest | None,
    shown: Series | None,
    rms: Series | None,
    written: Series | None,
    decay: Series | None,
    gradients: Series | None,
    *,
    min_change_share: float = 0.3,
    min_ratio: float = 10.0,
    adam_reach: float = 10.0,
    min_points: int = 4,
    max_way_ratio: float = 3.0,
    min_written_share: float = 0.1,
) -> Iterator[Hit | Skip]:
    """Weights change more than the optimizer can move them.

    ## What it checks
    Whether a tensor changes further than the optimizer can move it: by more than `min_change_share` of its size, in one of the
    ways below. A tensor is judged from `min_points` checkpoints on, and a jump is sev0:

    - In one step, the update per learning rate is more than `min_ratio` times the median of the last ten checkpoints, and more
      than `min_ratio` times as far beyond its past as the median tensor's update in that step.
    - In the lab's dev split, weights that are overwritten give 113 times and more; healthy runs reach 13 once, in an update of a
      fiftieth of its tensor.
    - Under Adam one step must also exceed `adam_reach` learning rates per element. Adam moves no element by more than (1 - beta1)
      / sqrt(1 - beta2) learning rates, 3.2 by its defaults (Kingma & Ba 2015, section 2.1).
    - Under plain descent one step must instead exceed the learning rate times the gradients that momentum adds up: three times as
      many as it ever did before, and never more than a hundred of the largest of the last 50 steps.
    - Under an unknown optimizer one step counts at an ordinary gradient only, for an update comes from gradient and rate. There
      an update of five times `min_ratio` its own past counts whatever the other tensors do.
    - Between two checkpoints, once an update was measured, the tensor's norm or its distance from its start changes by more than
      `max_way_ratio` times what its updates add up to.
    - Updates add up to as many as there are steps, each as large as the largest measured one per learning rate. Under optimizers
      that do not divide by the gradient's size, each is as large per gradient where that allows more.
    - Healthy changes between checkpoints reach at most 2.3 times that in the first twenty steps and 1.3 later (66 trainings of 30
      families); tensors that were written to ten steps before reach 22 and more.
    - Where no update was measured, a change of more than `max_way_ratio` times what updates like the earlier ones allow is sev1,
      for it rests on earlier updates.
    - There the longest update is the largest earlier way between two checkpoints over the root of its steps: n updates come n
      times as far as one where they agree, and at least the root of n times as far in any directions.
    - Healthy trainings reach at most 1.6 times what such updates allow (115 of them). It is no jump where the median tensor goes
      beyond its past too, or at twice its pace: the rate was raised.
    - Nor is it a jump where the tensor goes on at half that pace and more: a path has opened.
    - Where the recorder saw a tensor written to, a change by `min_written_share` since the checkpoint before is enough, if it is
      also `max_way_ratio` times the median change of the others.
    - A written tensor is named only where as many others were not written to: all of a model is written to where it is loaded,
      averaged or swapped.
    ## Why it matters
    Memory was corrupted, or something other than the optimizer wrote to the weights: what was learnt there is gone.
    ## False alarms
    Some large changes are the optimizer's own, or are meant:

    - Updates that grow everywhere are the learning rate's or the optimizer's business.
    - A tensor that starts near zero grows by large shares at first: it has no past then, or moves within reach.
    - Where the other tensors get no gradient, a tensor may grow by a single element: it is left out where it moves by no more
      than `min_ratio` times what elements of other tensors do in the same step.
    - Weight decay of a hundredth of the change in each step, added up by momentum, changes as much.
    - Tensors of which no gradient is expected, such as the biases of keys, go where rounding takes them, for Adam makes full
      updates of nothing. They are left out.
    - Where three tensors of one name in several modules change so, at two steps or more, a program does it on purpose, as pruning
      does: a note.
    """
    if moved is None or size is None:
        yield from _softened(_by_statistics(shown, rms, share=min_change_share, ratio=max_way_ratio, min_points=min_points))
        return
    yield from too_few(moved, min_points)
    table = table_of(facts)
    without_gradient = cancelled(gradients, table)
    every = size.only(lambda name: name not in without_gradient and table.no_gradient_reason(name) is None)
    moved, size = together(moved, every)
    if len(moved.steps) < min_points:
        return
    before = np.concatenate([size.values[:1], size.values[:-1]])
    relative = moved.values / np.maximum(np.maximum(size.values, before), 1e-300)
    large = relative > min_change_share
    if decay is not None:  # what each step takes off all weights, added up by momentum
        large &= relative > MAX_REACH * np.nan_to_num(row_medians(cells_like(moved, decay) * relative))[:, None]
    jumps = _jumps(moved, large, rate, gradient, adapts, facts, min_ratio, adam_reach, min_points)
    seen = {(moved.labels[column], int(moved.steps[row])) for row, column in zip(*np.nonzero(jumps), strict=True)}
    updates = replace(moved, values=np.where(jumps, np.nan, moved.values), recorded=moved.recorded & ~jumps)
    # A gradient of any size makes an adaptive update no larger.
    ways = UpdateReach(updates, rate, None if is_adaptive(adapts) else gradient, min_points=min_points)
    changes = _changes(every, away)
    between = _between(every, changes, ways, share=min_change_share, ratio=max_way_ratio)
    outcomes: list[Hit | Skip] = []
    for hit in (*between, *_written(every, changes, written, share=min_written_share, ratio=max_way_ratio)):
        if (place := (hit.where or "", hit.first or 0)) not in seen:
            seen.add(place)
            outcomes.append(hit)
    message = "{where} changes by {value:.2g} of its size in one step: no update of the optimizer can be so large"
    outcomes += [Hit.over(span, "sev0", message, badness=relative, limit=min_change_share) for span in spans(moved, jumps)]
    yield from _softened(outcomes)


def _softened(outcomes: Iterable[Hit | Skip]) -> Iterator[Hit | Skip]:
    """Yield hits as notes where several tensors of one name were written to at several steps, and all others unchanged."""
    outcomes = [*outcomes]
    tensors: dict[str, set[str | None]] = {}
    steps: dict[str, set[int | None]] = {}
    for hit in outcomes:
        if isinstance(hit, Hit):
            tensors.setdefault(_own_name(hit), set()).add(hit.where)
            steps.setdefault(_own_name(hit), set()).add(hit.first)
    for hit in outcomes:
        if isinstance(hit, Hit) and len(tensors[_own_name(hit)]) >= MIN_ALIKE and len(steps[_own_name(hit)]) > 1:
            yield replace(hit, severity="note", message=f"{hit.message}; so do others of its name: a program does it")
        else:
            yield hit


def _own_name(hit: Hit) -> str:
    """Return the last two words of a tensor's name: what it is called in its own module."""
    return ".".join((hit.where or "").split(".")[-2:])


def _jumps(
    moved: Series,
    large: Mask,
    rate: Series | None,
    gradient: Series | None,
    adapts: Series | None,
    facts: Manifest | None,
    min_ratio: float,
    adam_reach: float,
    min_points: int,
) -> Mask:
    """Tell which large changes of one step cannot be updates, by what is known of the optimizer, shape (C, P)."""
    excess = _excess(moved, rate, np.flatnonzero(large.any(axis=1)), min_points=min_points)
    jumps = large & (np.nan_to_num(excess, posinf=np.inf) > min_ratio)
    if rate is not None and is_adaptive(adapts):
        jumps &= moved.values > adam_reach * adaptive_reach(moved, rate, facts)
    elif rate is not None and gradient is not None and is_plain_descent(adapts):
        jumps = large & (moved.values > plain_descent_reach(moved, rate, gradient, min_points=min_points))
    elif rate is not None and gradient is not None and adapts is None:
        alone = _excess(moved, rate, np.flatnonzero(large.any(axis=1)), min_points=min_points, beside_others=False)
        jumps |= large & (np.nan_to_num(alone, posinf=np.inf) > UNKNOWN_OPTIMIZER_FACTOR * min_ratio)
        jumps &= _is_calm(moved.steps, gradient)
    # Where others get no gradient, a tensor may begin to move by a single element.
    elements = np.where(large, 0.0, moved.values / np.sqrt(table_of(facts).elements(moved.labels)))
    return np.asarray(jumps & ~(moved.values <= min_ratio * np.fmax.reduce(elements, axis=1, initial=0.0)[:, None]))


def _changes(size: Series, away: Series | None) -> Floats:
    """Return how much each tensor changed at least between checkpoints, by its norm and its distance, shape (C-1, P)."""
    changed = np.abs(np.diff(size.values, axis=0))
    if away is not None and size.steps[0] == 0:
        distance = cells_like(size, away) * size.values[0]
        distance[0] = 0.0
        changed = np.fmax(changed, np.abs(np.diff(distance, axis=0)))
    return np.asarray(changed)


def _written(size: Series, changed: Floats, written: Series | None, *, share: float, ratio: float) -> Iterator[Hit]:
    """Yield tensors that the recorder saw written to, and that changed by a large share and far more than the others."""
    if written is None:
        return
    known = cells_like(size, written)[1:] == 1
    with np.errstate(all="ignore"):
        relative = changed / np.maximum(size.values[1:], size.values[:-1])
    for row in np.flatnonzero(known.any(axis=1)).tolist():
        others = relative[row, ~known[row] & np.isfinite(relative[row])]
        if len(others) < known[row].sum():  # all of a model is loaded, averaged or swapped on purpose
            continue
        usual = median(others)
        for column in np.flatnonzero(known[row] & (relative[row] > max(share, ratio * usual))).tolist():
            yield _stretch(size, row, column, float(changed[row, column]), share, "something wrote to it between two updates")


def _between(size: Series, changed: Floats, ways: UpdateReach, *, share: float, ratio: float) -> Iterator[Hit]:
    """Yield tensors that changed between two checkpoints by more than their updates on the way add up to."""
    places = {name: place for place, name in enumerate(ways.labels)}
    changed = changed[:, [column for column, name in enumerate(size.labels) if name in places]]
    size = size.only(places.__contains__)
    columns = [places[name] for name in size.labels]
    is_large = changed > share * np.maximum(size.values[1:], size.values[:-1])
    # Updates before the first measured one may have been larger: a bias correction, or RAdam's descent by the gradient.
    is_large &= size.steps[:-1, None] >= ways.since[columns]
    beyond = is_large & (changed > ratio * ways.between(size.steps)[:, columns])
    for row, column in zip(*np.nonzero(beyond), strict=True):
        yield _stretch(size, int(row), int(column), float(changed[row, column]), share)


def _by_statistics(
    shown: Series | None, rms: Series | None, *, share: float, ratio: float, min_points: int, alike: float = 0.05
) -> Iterator[Hit | Skip]:
    """Yield tensors that change by more than updates like the earlier ones add up to.

    Args:
        shown: Change since the checkpoint before, relative to the tensor.
        rms: Size of each tensor's elements.
        share: Least change, as a share of the tensor.
        ratio: Least ratio of the change to the way that earlier updates allow.
        min_points: Checkpoints that must come before.
        alike: Where the logarithms of growth beyond `share` deviate by less, one number multiplied all of these tensors.
    """
    if shown is None or rms is None:
        yield needs_one_of(update_norm, weight_statistics_change)
        return
    yield from too_few(shown, min_points)
    start = min_points - 1  # what is shown of the first checkpoint is no change
    steps = np.diff(shown.steps, prepend=0)[:, None]
    sizes = cells_like(shown, rms)
    with np.errstate(all="ignore"):
        longest = np.fmax.accumulate(np.where(shown.values > 0, shown.values / np.sqrt(steps), np.nan), axis=0)
        excess = shown.values[start:] / (steps[start:] * longest[start - 1 : -1])
        grown = np.diff(np.log(sizes), axis=0)[start - 1 :]
        typical = row_medians(excess)
    before = np.fmax.accumulate(np.concatenate([[np.nan], typical[:-1]]))
    pace = shown.values / steps
    slowed = pace[1:] < pace[:-1] / 2  # a path that opens goes on as fast, a tensor that is written to once does not
    began = sizes[0] > np.fmax.accumulate(sizes, axis=0) / 2  # a tensor that began near zero grows by large shares
    as_others = _grow_as_others(shown.values * sizes, sizes, ratio)
    for row, (change, beyond, logs) in enumerate(zip(shown.values[start:-1], excess[:-1], grown[:-1], strict=True), start):
        known = logs[np.isfinite(logs) & (np.abs(logs) > share)]
        multiplied = len(known) > max(1, len(logs) / 2) and median(np.abs(known - median(known))) < alike
        if typical[row - start] > min(1.0, MIN_TIMES_FASTER * before[row - start]) and not multiplied:
            continue
        since, step = int(shown.steps[row - 1]), int(shown.steps[row])
        for column in np.flatnonzero(
            (change > share) & (beyond > ratio) & began[row - 1] & slowed[row] & (multiplied | ~as_others[row])
        ):
            yield Hit.at(
                [step],
                "sev1",
                f"{{where}} changes by {change[column]:.2g} of its size from step {since} to {step}: updates like those before "
                "do not add up to that",
                where=shown.labels[column],
                value=float(change[column]),
                limit=share,
                worst=0,
            )


def _grow_as_others(moved: Floats, sizes: Floats, ratio: float) -> Mask:
    """Return where tensors grow, by no more per element than `ratio` times what the median tensor moves, shape (C, P)."""
    is_usual = moved <= ratio * row_medians(moved)[:, None]
    is_usual[1:] &= sizes[1:] > sizes[:-1]
    return np.asarray(is_usual)


def _stretch(size: Series, row: int, column: int, changed: float, limit: float, why: str = UPDATES) -> Hit:
    since, step = int(size.steps[row]), int(size.steps[row + 1])
    before, after = size.values[row, column], size.values[row + 1, column]
    what = f"changes by {changed:.3g} from step {since} to {step}, where its norm goes from {before:.3g} to {after:.3g}"
    return Hit.at(
        [step],
        "sev0",
        f"{{where}} {what}: {why}",
        where=size.labels[column],
        value=float(changed / max(after, before)),
        limit=limit,
        worst=0,
    )


def _is_calm(steps: Steps, gradient: Series, *, ratio: float = 3.0) -> NDArray[np.bool_]:
    """Return the checkpoints whose recent gradients are all within `ratio` times the usual earlier one, shape (T, 1)."""
    largest = rate_times_largest_gradient(steps, steps, np.ones(len(steps)), gradient)[:, 0]
    norms = at(gradient, steps).values[:, 0]
    usual = [median(norms[max(0, row - WINDOW) : row]) if row else np.nan for row in range(len(steps))]
    return np.asarray(largest <= ratio * np.array(usual))[:, None]


def _excess(moved: Series, rate: Series | None, rows: Steps, *, min_points: int, beside_others: bool = True) -> Floats:
    """Return each tensor's update over its own past and, with `beside_others`, over the median tensor's ratio, shape (T, P).

    Only `rows` are judged; NaN in all others, and in those with too short a past.
    """
    per_rate = moved.values / rates_at(moved.steps, rate)[:, None]
    return _beyond_past(per_rate, rows, min_points=min_points, beside_others=beside_others)


def _beyond_past(per_rate: Floats, rows: Steps, *, min_points: int, beside_others: bool = True) -> Floats:
    """Return each cell over the median of those above it and, with `beside_others`, over the median column's, shape (T, P)."""
    excess = np.full(per_rate.shape, np.nan)
    with np.errstate(all="ignore"):
        for row in rows[rows >= min_points - 1]:
            past = per_rate[max(0, row - WINDOW) : row]
            known = np.isfinite(past).any(axis=0) & np.isfinite(per_rate[row])
            ratios = per_rate[row, known] / np.maximum(row_medians(past[:, known].T), 1e-300)
            if len(ratios):
                excess[row, known] = ratios / max(median(ratios), 1.0) if beside_others else ratios
    return excess
