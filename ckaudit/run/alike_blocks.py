"""Which blocks of a model are built alike, and may be compared by the size of their gradients."""

from collections.abc import Sequence

import numpy as np

from ckaudit.run.series import Floats, Mask, Series
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
    alike = np.zeros((len(blocks), len(blocks)), bool)
    for members in _of_one_form(blocks, parts):
        named = sorted(parts[blocks[members[0]]])
        alike[np.ix_(members, members)] = _of_like_size(
            np.array([[parts[blocks[row]][name] for name in named] for row in members])
        )
    return alike


def _of_one_form(blocks: Sequence[str], parts: dict[str, dict[str, float]]) -> list[list[int]]:
    """Return the blocks that stand in one list and have tensors of the same names, group by group."""
    groups: dict[tuple[str, frozenset[str]], list[int]] = {}
    for row, block in enumerate(blocks):
        groups.setdefault((block.rpartition(".")[0], frozenset(parts[block])), []).append(row)
    return list(groups.values())


def _of_like_size(sizes: Floats) -> Mask:
    """Tell which blocks have elements of a like size in all tensors where both sizes are known, shape (L, L).

    Args:
        sizes: Of each block's tensors, shape (L, P).
    """
    one, other = sizes[:, None], sizes[None]
    known = np.isfinite(one) & np.isfinite(other)
    return np.asarray(~(known & (np.maximum(one, other) > SCALE * np.minimum(one, other))).any(axis=2))
