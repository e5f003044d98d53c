"""Which blocks of a model are built alike, and may be compared by the size of their gradients."""

from collections.abc import Sequence

import numpy as np

from ckaudit.run.series import Mask, Series
from ckaudit.run.tensors import TensorTable

SCALE = 2.0
"""Tensors of one name whose elements are as large as each other's, within this, have as many inputs: a width doubles or more."""


def alike_blocks(blocks: Sequence[str], table: TensorTable, by_tensor: Series | None, rms: Series | None) -> Mask:
    """Tell which blocks are built like which, shape (L, L).

    Args:
        blocks: Names of the blocks.
        table: Its shapes decide where any is known.
        by_tensor: Gradient norm of each tensor: without shapes, its names and list decide, and the size of the elements.
        rms: Size of the elements of each tensor.
    """
    builds = table.builds(blocks)
    if any(builds) or by_tensor is None:
        return np.array([[one == other for other in builds] for one in builds])
    sizes = dict.fromkeys(by_tensor.labels, np.nan)
    if rms is not None and len(rms.steps):
        sizes |= dict(zip(rms.labels, rms.values[-1].tolist(), strict=True))
    parts: dict[str, dict[str, float]] = {block: {} for block in blocks}
    for name in by_tensor.labels:
        if (block := table.block(name)) in parts:
            parts[block][name.removeprefix(block)] = sizes[name]
    return np.array([[_are_alike(one, parts[one], other, parts[other]) for other in blocks] for one in blocks])


def _are_alike(one: str, its: dict[str, float], other: str, others: dict[str, float]) -> bool:
    """Tell whether two blocks stand in one list, and have tensors of the same names with elements of a like size."""
    if one.rpartition(".")[0] != other.rpartition(".")[0] or its.keys() != others.keys():
        return False
    pairs = [(its[part], others[part]) for part in its]
    return all(not max(pair) > SCALE * min(pair) for pair in pairs if np.isfinite(pair).all())
