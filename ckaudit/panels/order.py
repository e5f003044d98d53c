"""In which order tensors, blocks and heads stand, and which of many are shown."""

from collections.abc import Collection, Sequence

import numpy as np

from ckaudit.panels.sample import evenly
from ckaudit.run.series import Mask, Series
from ckaudit.run.tensors import TensorTable

FIRST, LAST = -1, 1_000_000_000


def forward(table: TensorTable, names: Sequence[str]) -> list[int]:
    """Return the places of names in the order of the forward pass: embeddings, blocks by depth, what stands behind them.

    >>> forward(TensorTable({}), ["head.weight", "blocks.1.up", "blocks.0.up", "wte"])
    [3, 2, 1, 0]
    """
    return sorted(range(len(names)), key=lambda place: depth(table, names[place]))


def depth(table: TensorTable, name: str) -> int:
    """Return where a name stands: before, in or behind the blocks."""
    found = table.depth(name)
    if found is not None:
        return found
    return FIRST if table.kind(name) == "embedding" else LAST


def chosen(places: Sequence[int], names: Sequence[str], wanted: Collection[str], max_places: int) -> list[int]:
    """Return at most `max_places` of some places in their order: those whose name is wanted, and others evenly spread."""
    if len(places) <= max_places:
        return list(places)
    asked = [place for place in places if names[place] in wanted][:max_places]
    others = [place for place in places if place not in asked]
    kept = (
        {*asked, *(others[each] for each in evenly(len(others), max_places - len(asked)))}
        if max_places > len(asked)
        else {*asked}
    )
    return [place for place in places if place in kept]


def foremost(series: Series, worst: str, wanted: Collection[str], max_columns: int) -> list[int]:
    """Return at most `max_columns` columns of a series in their order: those of findings, then the most striking."""
    count = len(series.labels)
    if count <= max_columns:
        return list(range(count))
    values = np.where(series.finite, series.values, np.nan)
    known: Mask = np.any(series.finite, axis=0)
    reach = np.array([np.nanmax(np.abs(values[:, place])) if known[place] else -np.inf for place in range(count)])
    least = np.array([np.nanmin(values[:, place]) if known[place] else np.inf for place in range(count)])
    rank = {"high": -reach, "low": least}.get(worst, np.arange(count, dtype=float))
    broken: Mask = np.any(series.nonfinite, axis=0)
    ranked = sorted(range(count), key=lambda place: (series.labels[place] not in wanted, not broken[place], rank[place], place))
    return sorted(ranked[:max_columns])
