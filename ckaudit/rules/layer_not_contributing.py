"""MOVE004: one layer moves far less than its neighbours."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.medians import row_medians
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.metrics.weights import update_to_weight
from ckaudit.rules.rule import FACTS, Hit, Skip, rule, too_few
from ckaudit.run.series import Floats, Series, at
from ckaudit.run.spans import spans
from ckaudit.run.tensors import TensorTable, table_of


@rule("MOVE004", severity="sev2", needs=[update_to_weight], wants=[learning_rate, FACTS], unit="1")
def layer_not_contributing(
    update: Series, rate: Series | None, facts: Manifest | None, *,
    lowest: float = 0.1, warmup: int = 20, min_points: int = 3, near: int = 2,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """One layer moves far less than its neighbours.

    ## What it checks
    Each matrix's update over its weights, relative to the median of the same matrix in the blocks up to `near` before and
    after it; then the median over the matrices of one part of a block (its attention, its MLP). Below `lowest` at
    `min_points` checkpoints in a row, after `warmup` steps and while the learning rate is not zero, that part does not
    contribute (D2.6; lab: healthy blocks at least 0.25, cut off or frozen ones at most 0.02). It is a part of the model
    that is still recorded; one without any update is found by another rule too.
    ## Why it matters
    The budget trains a shallower model than was paid for.
    ## False alarms
    Learning rates that fall from layer to layer change little between neighbours. Experts of a mixture are left out, and
    so is a model of one block.
    """
    tensors = table_of(facts)
    matrices = update.only(lambda name: _is_matrix(name, tensors))
    blocks = [block for block in dict.fromkeys(tensors.blocks(matrices.labels)) if block is not None]
    if len(blocks) < 2:
        yield Skip("not_applicable", "the model has fewer than two blocks")
        return
    yield from too_few(matrices, min_points)
    relative = _to_neighbours(matrices, tensors, near)
    parts = relative.grouped([_part(name, tensors) for name in relative.labels], row_medians)
    on = parts.steps > warmup
    if rate is not None:
        on &= np.nan_to_num(at(rate, parts.steps).values[:, 0], nan=1.0) > 0
    for span in spans(parts, (parts.values < lowest) & on[:, None], min_points=min_points):
        yield Hit.over(
            span, "sev2", "{where} moves {value:.2g} times as much as in the blocks beside it; below {limit:.2g} it rests",
            badness=-parts.values, value=parts.values, limit=lowest,
        )  # fmt: skip


def _is_matrix(name: str, tensors: TensorTable) -> bool:
    """Tell whether a tensor is a matrix of a block, as far as that is known."""
    fact = tensors.facts.get(name)
    flat = fact is not None and bool(fact.shape) and len(fact.shape or ()) < 2
    flat = flat or tensors.no_gradient_reason(name) is not None
    return tensors.block(name) is not None and not flat and tensors.kind(name) != "norm" and not tensors.is_expert(name)


def _part(name: str, tensors: TensorTable) -> str:
    """Return the part of a block that a tensor belongs to, such as "blocks.1 attention"."""
    return f"{tensors.block(name)} {tensors.kind(name)}"


def _to_neighbours(update: Series, tensors: TensorTable, near: int) -> Series:
    """Return each matrix's ratio over the median of its namesakes in the blocks beside it, which move at all."""
    values: Floats = np.where(update.finite, update.values, np.nan)
    depths = [tensors.depth(name) or 0 for name in update.labels]
    roles = tensors.roles(update.labels)
    relative = np.full(values.shape, np.nan)
    columns: dict[str, list[int]] = {}
    for column, role in enumerate(roles):
        columns.setdefault(role, []).append(column)
    for column, role in enumerate(roles):
        beside = [place for place in columns[role] if place != column and abs(depths[place] - depths[column]) <= near]
        if beside:
            others = np.where(values[:, beside] > 0, values[:, beside], np.nan)
            relative[:, column] = values[:, column] / row_medians(others)
    return Series("relative", "1", update.steps, update.labels, relative, np.isfinite(relative))
