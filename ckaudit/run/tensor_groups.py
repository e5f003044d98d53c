"""Groups of model places: names for all tensors of a module, a layer or the model, and blocks of the same build."""

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile

import numpy as np
from msgspec import Struct

from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Mask, Series
from ckaudit.run.tensors import TensorTable, last_of_stack

Known = Sequence[tuple[str, frozenset[str]]]
TENSORS = ("weights", "gradients", "weight_deltas")
_BLOCK = re.compile(r"[^\d]*\d+")  # a block's name has one number, at its end
_NORM = re.compile(r"_(layer_?)?(norm|ln)")

MIN_LIKE_BLOCKS = 3
"""Minimum number of blocks of one build: their median is that of healthy blocks where a single one is ill."""

SCALE = 2.0
"""Tensors of one name with element sizes within this factor have the same number of inputs: a width changes by a factor of two or
more."""


class PlaceGroup(Struct, frozen=True):
    """All places of one kind in one part of the model.

    Attributes:
        count: Number of places.
        noun: Kind of place, in the plural.
        part: Part of the model; empty: the whole model.
    """

    count: int
    noun: str
    part: str = ""

    def as_place(self) -> str:
        """Return the name that answers "where".

        >>> PlaceGroup(8, "tensors", "blocks.2").as_place(), PlaceGroup(12, "heads").as_place()
        ('all 8 tensors of blocks.2', 'all 12 heads')
        """
        return self._all() + (f" of {self.part}" if self.part else "")

    def as_subject(self, later: str = "") -> str:
        """Return a name that takes a singular verb, with `later` appended inside the brackets.

        >>> PlaceGroup(5, "tensors", "blocks.1.attn").as_subject()
        'blocks.1.attn (all 5 tensors)'
        """
        return f"{self.part or 'the model'} ({self._all()}{later})"

    def _all(self) -> str:
        return f"both {self.noun}" if self.count == 2 else f"all {self.count} {self.noun}"


def group_of(places: Collection[str], places_of_run: Known) -> PlaceGroup | None:
    """Return the group that consists of exactly these places; None if there is none or only one place.

    Args:
        places: Tensors, modules, blocks or heads.
        places_of_run: All places of each kind in the run, with the plural name of the kind.
    """
    wanted = frozenset(places)
    for noun, every in places_of_run if len(wanted) > 1 else ():
        part = _part(wanted, every) if wanted <= every else None
        if part is not None:
            return PlaceGroup(len(wanted), noun, part)
    return None


def known_places(run: Run) -> Known:
    """Return the tensors, heads, modules and blocks that a run records."""
    return run.derived("known_places", lambda: _known(run))


def _known(run: Run) -> Known:
    tensors = frozenset(_labels(run, TENSORS) | set(run.tensors.facts))
    modules = frozenset(_labels(run, ("activations",)))
    heads = frozenset(label for label in _labels(run, ("attention",)) if "/" in label)
    blocks = frozenset(block for block in run.tensors.blocks(tensors) if block is not None)
    return (
        ("tensors", tensors),
        ("trainable tensors", frozenset(filter(run.tensors.is_trainable, tensors))),
        ("heads", heads),
        ("blocks", blocks),
        ("blocks", frozenset(filter(_BLOCK.fullmatch, modules))),
        ("modules", modules),
    )


def _labels(run: Run, sections: Collection[str]) -> set[str]:
    """Return the places that appear in some sections; labels of percentiles are not places."""
    label_rows = (
        series.labels
        for path, series in run.sections.items()
        if path.partition(".")[0] in sections and not path.endswith(".percentiles")
    )
    return {label for labels in label_rows for label in labels}


def _part(wanted: frozenset[str], every: frozenset[str]) -> str | None:
    """Return the name of the part with exactly the places `wanted` among `every`; "" for the whole model, None if none."""
    if wanted == every:
        return ""
    between = "/" if all("/" in place for place in wanted) else "."
    split = {place: place.split(between) for place in every}
    columns = zip(*(split[place] for place in wanted), strict=False)
    stem = [parts[0] for parts in takewhile(lambda parts: len(set(parts)) == 1, columns)]
    if stem and _inside(stem, split) == wanted:
        return between.join(stem)
    children = {tuple(split[place][: len(stem) + 1]) for place in wanted}
    if frozenset().union(*(_inside(child, split) for child in children)) != wanted:
        return None
    return _joined([between.join(child) for child in children], len(wanted))


def _inside(stem: Sequence[str], split: dict[str, list[str]]) -> frozenset[str]:
    return frozenset(place for place, parts in split.items() if parts[: len(stem)] == list(stem))


def _joined(modules: Iterable[str], count: int) -> str | None:
    """Return one name for sibling modules: a module with its norms has its own name, two modules are both named; else None.

    >>> _joined(["blocks.1.attn_norm", "blocks.1.attn"], 5), _joined(["h.0.ln_1", "h.0.attn"], 6), _joined(["a", "b"], 2)
    ('blocks.1.attn', 'h.0.attn and h.0.ln_1', None)
    """
    first, *others = sorted(modules, key=lambda name: (len(name), name))
    if all(name.startswith(first) and _NORM.fullmatch(name[len(first) :]) for name in others):
        return first
    return " and ".join(sorted((first, *others))) if len(others) == 1 and count > 2 else None


def alike_blocks(blocks: Sequence[str], table: TensorTable, by_tensor: Series | None, rms: Series | None) -> Mask:
    """Tell which blocks have the same build and are in the same list, shape (L, L).

    Blocks of different lists, such as encoder and decoder or policy and critic, have different functions.

    Args:
        blocks: Names of the blocks.
        table: Its shapes decide if any is known.
        by_tensor: Gradient norm of each tensor. Without shapes, tensor names, the list of the block and the element sizes decide.
        rms: Element size of each tensor.
    """
    builds = [*zip(table.builds(blocks), last_of_stack(blocks), strict=True)]
    if any(build for build, _ in builds) or by_tensor is None:
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
    """Return groups of blocks that are in one list and have tensors of the same names."""
    groups: dict[tuple[str, frozenset[str]], list[int]] = {}
    for row, block in enumerate(blocks):
        groups.setdefault((block.rpartition(".")[0], frozenset(parts[block])), []).append(row)
    return list(groups.values())


def _of_like_size(sizes: Floats) -> Mask:
    """Tell which blocks have similar element sizes in all tensors for which both sizes are known, shape (L, L).

    Args:
        sizes: Element sizes of each block's tensors, shape (L, P).
    """
    unlike = np.zeros((len(sizes), len(sizes)), bool)
    for part in np.where(np.isfinite(sizes), sizes, np.nan).T:
        unlike |= np.maximum.outer(part, part) > SCALE * np.minimum.outer(part, part)
    return ~unlike
