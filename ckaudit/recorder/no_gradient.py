"""Tensors that no gradient is to be expected of: fixed tables of sinusoids, and parts that a forward pass has no use for."""

from collections.abc import Collection, Mapping

from msgspec import UNSET
from msgspec.structs import replace
from torch import Tensor

from ckaudit.contract.manifest import TensorFacts
from ckaudit.recorder.arrays import dense, is_sharded

PRECISION = 1e-3  # of the mean square of a row; rows drawn at random from 512 channels differ by 6 in a hundred


def is_table_of_sinusoids(tensor: Tensor) -> bool:
    """Return whether every row of a table consists of pairs of a sine and a cosine: then its mean square is one half.

    Rows of zeros, as for padding or a class token, are passed over. Drawn values have rows of many sizes.

    >>> import torch
    >>> angles = torch.arange(20.0)[:, None] / 100 ** torch.linspace(0, 1, 8)
    >>> is_table_of_sinusoids(torch.cat([angles.sin(), angles.cos()], 1)), is_table_of_sinusoids(torch.randn(20, 16))
    (True, False)
    """
    if tensor.ndim < 2 or is_sharded(tensor) or tensor.device.type == "meta" or not tensor.is_floating_point():
        return False
    rows = dense(tensor.detach()).reshape(-1, tensor.shape[-1]).float()
    squares = rows.square().mean(1)
    squares = squares[squares > 0]
    return len(squares) > 1 and bool(((squares - 0.5).abs() < PRECISION).all())


def unused(table: Mapping[str, TensorFacts], called: Collection[str], hooked: Collection[str] | None) -> frozenset[str]:
    """Return the tensors of parts beside the blocks that a forward pass did not call or whose output it threw away.

    A part is as large as nothing in it was used, and has a matrix of its own: an unused pooling layer or head. A
    table of positions or a normalization that is never called has been forgotten, and so has a block.

    Args:
        table: All tensors, with the operators that read them.
        called: Names of the modules that were called, those aside that hang on the way to the output and give nothing to it.
        hooked: Names of the modules that could be seen; None: all.
    """
    if all(facts.operator is UNSET for facts in table.values()):
        return frozenset()  # nobody saw what was read
    used = {facts.module for facts in table.values() if facts.operator is not UNSET} | {*called}
    idle = {str(facts.module) for facts in table.values() if facts.module not in used}
    idle = {module for module in idle if hooked is None or module in hooked}
    parts: dict[str, list[str]] = {}
    for name, facts in table.items():
        if facts.module in idle:
            parts.setdefault(_part(str(facts.module), used), []).append(name)
    found = {part: names for part, names in parts.items() if all(table[name].block is UNSET for name in names)}
    return frozenset(name for names in found.values() if any(_is_matrix(table[each]) for each in names) for name in names)


def without_use(
    table: Mapping[str, TensorFacts], called: Collection[str], hooked: Collection[str] | None
) -> dict[str, TensorFacts]:
    """Return the table with the tensors of `unused` parts marked."""
    idle = unused(table, called, hooked)
    return {name: replace(facts, no_gradient="unused") if name in idle else facts for name, facts in table.items()}


def _part(module: str, used: Collection[object]) -> str:
    """Return the outermost module around one in which nothing is used."""
    words = module.split(".")
    outer = [".".join(words[:count]) for count in range(1, len(words) + 1)]
    return next(each for each in outer if not any(str(one) == each or str(one).startswith(f"{each}.") for one in used))


def _is_matrix(facts: TensorFacts) -> bool:
    return facts.kind != "embedding" and facts.shape is not UNSET and len(facts.shape) > 1
