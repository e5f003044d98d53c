"""MOVE003: tensors stand still that others of the same model train."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import permutations
from typing import Any

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.gradients import gradient_norm
from ckaudit.metrics.loss import initial_loss_excess
from ckaudit.metrics.weights import is_freshly_drawn, update_norm, weight_max_abs, weight_rms
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Series
from ckaudit.run.tensors import TensorTable, table_of, whole_parts

MEANT = ("fixed_table", "unused")
NOT_THE_MODEL = re.compile(r"(?i)(^|[._])(teachers?|targets?|ema|momentum|ref|reference|frozen)([._]|\d|$)")
"""Names of parts that are not trained, because another part learns from them."""
DECLARED = ("frozen", "trainable")
"""Keys of the configuration in run.json: patterns of the names that are to stand still, and of those that are to train."""


MIN_ELEMENTS = 64
"""Minimum number of elements: the largest of fewer says little about their distribution."""


@rule(
    "MOVE003",
    severity="sev2",
    needs=[gradient_norm, FACTS],
    wants=[update_norm, initial_loss_excess, weight_max_abs, weight_rms],
    unit="tensors",
)
def frozen_parameter(
    gradient: Series,
    facts: Manifest,
    update: Series | None,
    start: Series | None,
    largest: Series | None,
    rms: Series | None,
    *,
    max_frozen_share: float = 0.5,
    min_points: int = 2,
    min_nats_below_guess: float = 0.5,
    max_peak_of_draw: float = 1.9,
) -> Iterator[Hit | Skip]:
    """Tensors that neighbours of their kind train are not trained.

    ## What it checks
    Tensors that do not ask for a gradient, and tensors that do but got neither a gradient nor an update at `min_points`
    checkpoints, while others train:

    - Fewer than `max_frozen_share` of all tensors are sev2, for freezing on purpose usually takes most of a model; more are a
      note.
    - Frozen tensors are a note as well where the first loss is lower than a guess by `min_nats_below_guess` nats: the model was
      trained before.
    - Most of a model, or a whole part of it, is sev2 all the same where it is still as it was drawn: the elements of each of its
      normalizations are of one size at step 0, which training ends.
    - A model is also as it was drawn where each frozen matrix is spread evenly between two ends: its largest element is then the
      root of 3 times its root mean square, and at most `max_peak_of_draw` times.
    - A model does not count as drawn where a trained matrix has the shape of each frozen one: teachers and target networks begin
      as copies.
    - Tensors that had gradients and updates, and have neither from some checkpoint on to the end while others go on, were frozen
      in the midst of the training: sev2.
    ## Why it matters
    The tensors stay as they were drawn, at random, and the loss falls nonetheless: nobody sees it (as once with the table of
    positions in a model of 175 billion).
    ## False alarms
    Many tensors stand still on purpose; they are left out or a note:

    - Tensors that run.json's configuration declares in `frozen` or leaves out of `trainable` (lists of names or patterns) are
      meant, and so are parts called a teacher, a target or a reference.
    - Fixed tables of sinusoids, parts that the forward pass does not use, an expert that no token was sent to, and tensors that
      are thawed later are left out.
    - A matrix, with its bias, is left out where two trained matrices beside it make up a product of its shape and lower rank
      (LoRA).
    - What else stands still beside such adapters, or beside tensors that were thawed as planned, is a note.
    - Where every block trains the same of its tensors and freezes the same, as where only biases or norms are trained, it is a
      note.
    - A part of the model with blocks of its own that is frozen as a whole, such as an image tower, a teacher or the first stages,
      is a note.
    - Single numbers and vectors are a note, as a mean that is taken off or the lengths of a head's rows: what they are is not
      drawn at random.
    - Weights that are random on purpose, as in a reservoir or random features, are to be declared.
    """
    yield from too_few(gradient, min_points)
    tensors = table_of(facts)
    yield from _frozen_later(gradient, update, facts, tensors)
    names = {name: fact for name, fact in tensors.facts.items() if tensors.no_gradient_reason(name) not in MEANT}
    still = [name for name, fact in names.items() if fact.trainable is False and name not in gradient.places]
    still += [name for name, fact in names.items() if fact.trainable is not False and _never(name, gradient, update, min_points)]
    config = facts.config if isinstance(facts.config, dict) else {}
    adapted = _beside_adapters(still, tensors)
    meant = {name for name in still if _is_meant(name, config) or NOT_THE_MODEL.search(name)} | adapted
    meant |= {name for name in still if tensors.is_expert(name) and tensors.facts[name].trainable is not False}
    unintended = [name for name in still if name not in meant]
    if not unintended or len(unintended) == len(names):
        return
    thawed = _are_thawed(gradient)
    learnt = start is not None and start.finite.any() and float(start.values[start.finite][0]) < -min_nats_below_guess
    is_large = len(still) >= max_frozen_share * len(names) or whole_parts(still, names) >= {*unintended}
    by_intent = (
        learnt
        or thawed
        or bool(adapted)
        or all(_is_line(tensors, name) for name in unintended)
        or _is_chosen_by_role(still, names, tensors)
        or (is_large and not _is_as_drawn(unintended, {*names} - {*still}, tensors, largest, rms, max_peak_of_draw))
    )
    severity: Severity = "note" if by_intent else "sev2"
    yield Hit(
        severity=severity,
        where=unintended[0],
        also=tuple(unintended[1:]),
        first=int(gradient.steps[0]),
        last=int(gradient.steps[-1]),
        value=float(len(unintended)),
        limit=0.0,
        points=gradient.points,
        joined_by=int(gradient.steps[0]),
        message="{where} is not trained, while " + f"{len(names) - len(still)} of {len(names)} tensors are; "
        "run.json declares nothing of it",
    )


def _frozen_later(
    gradient: Series, update: Series | None, facts: Manifest, tensors: TensorTable, *, min_rows: int = 3
) -> Iterator[Hit]:
    """Yield tensors that were trained at first and are not for the last `min_rows` checkpoints or more, while another one is."""
    if update is None or len(gradient.steps) <= min_rows or _are_thawed(gradient):
        return
    config = facts.config if isinstance(facts.config, dict) else {}
    since: dict[int, list[str]] = {}
    for name, column in gradient.places.items():
        rows = np.flatnonzero(gradient.recorded[:, column])
        if name not in update.places or not len(rows) or tensors.is_expert(name) or _is_meant(name, config):
            continue
        first = int(rows[-1]) + 1
        is_whole = len(rows) == first and len(gradient.steps) - first >= min_rows
        moves_on = update.recorded[update.steps >= gradient.steps[min(first, len(gradient.steps) - 1)], update.places[name]].any()
        if is_whole and not moves_on:
            since.setdefault(first, []).append(name)
    if not gradient.recorded[-1].any():
        return
    for first, names in since.items():
        yield Hit(
            severity="sev2",
            where=names[0],
            also=tuple(names[1:]),
            first=int(gradient.steps[first]),
            last=int(gradient.steps[-1]),
            value=float(len(names)),
            limit=0.0,
            points=len(gradient.steps) - first,
            joined_by=int(gradient.steps[first]),
            message=f"{{where}} was trained until step {gradient.steps[first - 1]}, and is not any more: it asks for no gradient",
        )


def _are_thawed(gradient: Series, *, min_tensors: int = 2) -> bool:
    """Tell whether several tensors were frozen at first and are trained later: then there is a plan of what is frozen when."""
    late = gradient.finite.any(axis=0) & ~gradient.recorded[: max(1, len(gradient.steps) // 10)].any(axis=0)
    return int(late.sum()) >= min_tensors


def _is_line(tensors: TensorTable, name: str) -> bool:
    """Tell whether a tensor is known to be a single number or a row of them, in whatever shape."""
    shape = tensors.facts[name].shape
    return shape is not UNSET and sum(size > 1 for size in shape) < 2


def _is_chosen_by_role(still: Collection[str], names: Iterable[str], tensors: TensorTable) -> bool:
    """Tell whether every block trains the same of its tensors and freezes the same, as where only biases or norms are trained."""
    in_blocks = [name for name in names if tensors.block(name) is not None]
    patterns: dict[str | None, set[tuple[str, bool]]] = {}
    unmoved = {*still}
    for name, role in zip(in_blocks, tensors.roles(in_blocks), strict=True):
        patterns.setdefault(tensors.block(name), set()).add((role, name in unmoved))
    first, *others = [*patterns.values()] or [set()]
    return bool(others) and all(pattern == first for pattern in others) and {frozen for _, frozen in first} == {True, False}


def _is_as_drawn(
    still: Sequence[str],
    trained: Collection[str],
    tensors: TensorTable,
    largest: Series | None,
    rms: Series | None,
    max_peak_of_draw: float,
) -> bool:
    """Tell whether frozen tensors are as they were drawn, and no copies of trained ones.

    Each of their normalizations is still of one size, or all their matrices are spread evenly between two ends.
    """
    if largest is None or rms is None:
        return False
    shapes = {name: tuple(fact.shape) for name, fact in tensors.facts.items() if fact.shape and len(fact.shape) > 1}
    matrices = [name for name in still if name in shapes and math.prod(shapes[name]) >= MIN_ELEMENTS]
    if not matrices or {shapes[name] for name in matrices} <= {shapes.get(name) for name in trained}:
        return False
    if is_freshly_drawn(rms, largest, TensorTable({name: tensors.facts[name] for name in still})):
        return True
    return all(
        name in largest.places
        and name in rms.places
        and max(_column(largest, name), default=math.nan) <= max_peak_of_draw * min(_column(rms, name), default=math.nan)
        for name in matrices
    )


def _column(series: Series, name: str) -> list[float]:
    column = series.places[name]
    values: list[float] = series.values[series.finite_in(column), column].tolist()
    return values


def _beside_adapters(still: Sequence[str], tensors: TensorTable) -> frozenset[str]:
    """Return the frozen tensors of modules beside which two trained matrices multiply to the module's shape, at a lower rank."""
    trained: dict[str, set[tuple[int, ...]]] = {}
    frozen = {*still}
    for name, fact in tensors.facts.items():
        if name not in frozen and fact.shape and len(fact.shape) == 2:
            for outer in _modules_around(name):
                trained.setdefault(outer, set()).add(tuple(fact.shape))
    adapted = set()
    for name in still:
        module, shape = name.rpartition(".")[0], tensors.facts[name].shape
        factors = trained.get(module) or trained.get(module.rpartition(".")[0], set())
        if shape and len(shape) == 2 and _is_low_rank_of(shape, factors):
            adapted.add(module)
    return frozenset(name for name in still if name.rpartition(".")[0] in adapted)


def _modules_around(name: str, *, levels: int = 3) -> Iterator[str]:
    """Yield the modules that a tensor lies in, from its own outwards: adapters of peft lie up to three deep."""
    for _ in range(levels):
        name = name.rpartition(".")[0]
        if name:
            yield name


def _is_low_rank_of(shape: Sequence[int], factors: Collection[tuple[int, ...]]) -> bool:
    """Tell whether matrices of two of these shapes, in one order or the other, multiply to a shape with a smaller rank."""
    return any(
        rank < min(shape) and rank in up and sorted((math.prod(down) // rank, math.prod(up) // rank)) == sorted(shape)
        for down, up in permutations(factors, 2)
        for rank in down
        if rank
    )


def _never(name: str, gradient: Series, update: Series | None, min_points: int) -> bool:
    """Tell whether a tensor got neither a gradient nor an update, though updates of it were recorded."""
    if name in gradient.places or update is None or name not in update.places:
        return False
    column = update.places[name]
    moved = update.values[update.finite_in(column), column]
    return len(moved) >= min_points and not np.any(moved)


def _is_meant(name: str, config: dict[str, Any]) -> bool:
    """Tell whether the configuration says that a tensor is frozen."""
    frozen, trainable = (config.get(key) for key in DECLARED)
    if isinstance(frozen, list) and any(fnmatchcase(name, str(pattern)) for pattern in frozen):
        return True
    return isinstance(trainable, list) and not any(fnmatchcase(name, str(pattern)) for pattern in trainable)
