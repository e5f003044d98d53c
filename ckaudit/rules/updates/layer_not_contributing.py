"""MOVE004: one layer moves far less than its neighbours."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec.structs import replace

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.tensor_names import is_bias
from ckaudit.metrics.estimated_movement import cells_like
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.reductions import row_medians
from ckaudit.metrics.weights import relative_movement, update_to_weight, weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule, too_few
from ckaudit.run.medians import median
from ckaudit.run.series import Floats, Mask, Series, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of

MIN_MOVEMENT_SHARE = 1e-3
"""Minimum distance that a block moves, relative to the part that moved furthest: a fine-tuning's smallest rate is above a
hundredth of its largest, and healthy blocks of 19 families move at least 0.036 as far."""

OWN_WAY = 0.01
"""A block that moved by this share of its own size is trained, however far a head with a near-zero start has moved."""

OUTSIDE = ("embedding", "head", "norm")


@rule(
    "MOVE004",
    severity="sev2",
    needs=[],
    wants=[update_to_weight, relative_movement, weight_rms, gradient_norm, learning_rate, FACTS],
    unit="1",
)
def layer_not_contributing(
    update: Series | None,
    way: Series | None,
    rms: Series | None,
    gradient: Series | None,
    rate: Series | None,
    facts: Manifest | None,
    *,
    min_relative_update: float = 0.1,
    warmup: int = 20,
    min_points: int = 3,
    blocks_around: int = 2,
) -> Iterator[Hit | Skip]:
    """One layer moves far less than its neighbours.

    ## What it checks
    Each matrix's update, over its weights and by its root mean square, relative to the median of the same matrix in the blocks up
    to `blocks_around` before and after it. The larger of the two ratios counts:

    - A part of a block (its attention, its MLP) does not contribute where the median over its matrices is below
      `min_relative_update` at `min_points` checkpoints in a row (D2.6; lab: healthy blocks at least 0.25, cut off or frozen ones
      at most 0.02).
    - Steps up to `warmup`, and steps with a learning rate of zero, are not judged.
    - Only parts that are still recorded are compared; a part without any update is found by another rule too.
    - Where no update was measured, the way since the start stands in.
    - Whatever its neighbours do, a block stands still that has come less than a thousandth as far as the block that came
      furthest, or as embedding, norms and head (D3.4), and by less than 0.01 of its own size.
    - The way of a block is taken by the root mean square of its elements as well as relative to its size.
    ## Why it matters
    The budget trains a shallower model than was paid for.
    ## False alarms
    Some parts rightly move less:

    - Learning rates that fall from layer to layer change little between neighbours.
    - Experts of a mixture are left out, and so is a model of one block.
    - A layer that has no gradient by then and gets one later is left out: it is thawed, or dropped at random.
    - Of the way, tensors without a recorded gradient are left out, as below an adapter, and so is a record in which nothing moves
      at all.
    """
    way = way and _where_it_has_a_gradient(way, gradient)
    update = update and _while_it_trains(update, gradient)
    moved = update if update is not None else way
    if moved is None:
        yield needs_one_of(update_to_weight, relative_movement)
        return
    tensors = table_of(facts)
    matrices = moved.only(lambda name: _is_matrix(name, tensors))
    blocks = [block for block in dict.fromkeys(tensors.blocks(matrices.labels)) if block is not None]
    if len(blocks) < 2:
        yield Skip("not_applicable", "the model has fewer than two blocks")
        return
    enough = min_points if update is not None else min_points - 1  # the way lacks the first checkpoint
    yield from too_few(matrices, enough)
    relative = _to_neighbours(matrices, tensors, blocks_around)
    if rms is not None:  # Adam moves large and small weights by the same: a layer with larger ones does not stand still
        by_element = replace(matrices, values=matrices.values * cells_like(matrices, rms))
        relative = replace(relative, values=np.fmax(relative.values, _to_neighbours(by_element, tensors, blocks_around).values))
    parts = relative.grouped([f"{tensors.block(name)} {tensors.kind(name)}" for name in relative.labels], row_medians)
    on = parts.steps > warmup
    if rate is not None:
        on &= np.nan_to_num(at(rate, parts.steps).values[:, 0], nan=1.0) > 0
    reported: set[str] = set()
    for span in spans(
        parts, (parts.values < min_relative_update) & on[:, None], min_points=min_points if update is not None else min_points - 1
    ):
        reported.add(span.label.rpartition(" ")[0])
        yield Hit.over(
            span,
            "sev2",
            "{where} moves {value:.2g} times as much as in the blocks beside it; below {limit:.2g} it does not contribute",
            badness=-parts.values,
            value=parts.values,
            limit=min_relative_update,
        )
    if way is not None:
        yield from (hit for hit in _hardly_moved_blocks(way, rms, tensors, warmup) if hit.where not in reported)


def _where_it_has_a_gradient(way: Series, gradient: Series | None) -> Series:
    """Return the distance of each tensor at the checkpoints with its gradient; at all of them where no gradients are recorded."""
    if gradient is None:
        return way
    trained = way.only(lambda name: name in gradient.places)
    recorded = cells_like(trained, replace(gradient, values=gradient.recorded.astype(float))) != 0
    return replace(trained, values=np.where(recorded, trained.values, np.nan), recorded=trained.recorded & recorded)


def _while_it_trains(update: Series, gradient: Series | None) -> Series:
    """Return updates without those of checkpoints at which a tensor has no gradient and gets one later."""
    if gradient is None:
        return update
    has_one = cells_like(update, replace(gradient, values=gradient.recorded.astype(float))) == 1
    gets_one_later = np.logical_or.accumulate(has_one[::-1], axis=0)[::-1]
    trains = has_one | ~gets_one_later
    return replace(update, values=np.where(trains, update.values, np.nan), recorded=update.recorded & trains)


def _hardly_moved_blocks(way: Series, rms: Series | None, tensors: TensorTable, warmup: int) -> Iterator[Hit]:
    """Yield the blocks that have hardly moved by the end, while another block or a tensor outside the blocks has."""
    rows = np.flatnonzero(way.finite.any(axis=1))
    if not len(rows) or way.steps[rows[-1]] <= warmup:
        return
    row = int(rows[-1])
    known = np.where(way.finite[row], way.values[row], np.nan)
    by_element = known * cells_like(way, rms)[row] if rms is not None else np.full(known.shape, np.nan)
    groups = _groups(way.labels, np.isfinite(known), tensors)
    sizes = {group: tuple(median(values[columns]) for values in (known, by_element)) for group, columns in groups.items()}
    largest = np.fmax.reduce(np.array([*sizes.values(), np.zeros(2)]))
    for group, size in sizes.items() if largest[0] > 0 else ():
        share = max([float(one / top) for one, top in zip(size, largest, strict=True) if top > 0 and not np.isnan(one)])
        if group in OUTSIDE or share >= MIN_MOVEMENT_SHARE or size[0] >= OWN_WAY:
            continue
        yield Hit(
            severity="sev2",
            where=group,
            first=int(way.steps[rows[0]]),
            last=int(way.steps[row]),
            value=share,
            limit=MIN_MOVEMENT_SHARE,
            points=len(rows),
            badness=-share,
            message="{where} has come {value:.2g} times as far as the part of the model that came furthest; below {limit:.0e} it "
            "stands still",
        )


def _groups(names: Sequence[str], known: Mask, tensors: TensorTable) -> dict[str, list[int]]:
    """Return the columns of each block, and of each kind of tensor outside the blocks; of known, trainable tensors only."""
    groups: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        if not known[column] or not tensors.is_trainable(name) or tensors.is_expert(name):
            continue
        kind = tensors.kind(name)
        group = kind if kind in OUTSIDE else tensors.block(name)
        if group is not None:
            groups.setdefault(group, []).append(column)
    return groups


def _is_matrix(name: str, tensors: TensorTable) -> bool:
    """Tell whether a tensor is a matrix of a block, as far as that is known."""
    fact = tensors.facts.get(name)
    flat = fact is not None and bool(fact.shape) and len(fact.shape or ()) < 2
    flat = flat or tensors.no_gradient_reason(name) is not None or (fact is None and is_bias(name))
    return tensors.block(name) is not None and not flat and tensors.kind(name) != "norm" and not tensors.is_expert(name)


def _to_neighbours(update: Series, tensors: TensorTable, near: int) -> Series:
    """Return each matrix's update over the median of the same matrix in the blocks beside it, of those that move.

    Where shapes are known, only matrices of one shape are compared: layers of a list that are built differently learn at a pace
    of their own. Where they are not known, layers of a plain stack, which share nothing but their place, are not compared.
    """
    values: Floats = np.where(update.finite, update.values, np.nan)
    depths = [tensors.depth(name) or 0 for name in update.labels]
    roles = tensors.roles(update.labels)
    relative = np.full(values.shape, np.nan)
    builds = [
        (role, tuple(tensors.facts[name].shape or ()) if name in tensors.facts else None)
        for role, name in zip(roles, update.labels, strict=True)
    ]
    columns: dict[object, list[int]] = {}
    for column, build in enumerate(builds):
        name = update.labels[column]
        if build[1] is None and name.rpartition(".")[0] == tensors.block(name):
            continue
        columns.setdefault(build, []).append(column)
    for places in columns.values():
        places.sort(key=depths.__getitem__)
    for column, build in enumerate(builds):
        like, depth = columns.get(build, []), depths[column]
        first = bisect_left(like, depth - near, key=depths.__getitem__)
        end = bisect_right(like, depth + near, key=depths.__getitem__)
        beside = [place for place in like[first:end] if place != column]
        if beside:
            others = np.where(values[:, beside] > 0, values[:, beside], np.nan)
            relative[:, column] = values[:, column] / row_medians(others)
    return Series("relative", "1", update.steps, update.labels, relative, np.isfinite(relative))
