"""The values of two checkpoints side by side: one walk for those who list what differs and for those who count it."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ckaudit.diff.timing_fields import RANK_FACTS, SECTIONS, tells_time

BY_PLACE = ("weights", "gradients", "weight_deltas", "activations", "attention", "moe", "probes")
"""Sections with a member for each tensor, module, layer or probe."""
RECORDING = SECTIONS | {"schema_version", "triggers", "event_step", "left_out"}
"""Members that say when a file was written, by whom, and why."""
_ORDER = ("data", "activations", "attention", "moe", "loss", "scalars", "gradients", "optimizer", "weight_deltas", "weights")


def values(
    left: Mapping[str, Any], right: Mapping[str, Any], *, without: Collection[str] = RECORDING
) -> Iterator[tuple[str, str | None, Any, Any]]:
    """Yield what both checkpoints say, None for one that does not, in the order in which a step computes it.

    Of a section with places, each place with all its fields: section, place, both. Of others, each value that is no object:
    dotted name, None, both. What only tells the time is left out.

    Args:
        left: One checkpoint as plain objects.
        right: The other.
        without: Sections that are left out.
    """
    names = [name for name in dict.fromkeys((*left, *right)) if name not in without]
    for section in sorted(names, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER)):
        one, other = left.get(section), right.get(section)
        if section in BY_PLACE and isinstance(one, dict) and isinstance(other, dict):
            for place in one if one.keys() == other.keys() else dict.fromkeys((*one, *other)):
                yield section, place, one.get(place), other.get(place)
        else:
            yield from _members(section, one, other)


def _members(path: str, left: Any, right: Any) -> Iterator[tuple[str, None, Any, Any]]:
    if not isinstance(left, dict) or not isinstance(right, dict):
        yield path, None, left, right
        return
    for key in dict.fromkeys((*left, *right)):
        if not ((path == "scalars" and tells_time(key)) or (path == "rank_facts" and key in RANK_FACTS)):
            yield from _members(f"{path}.{key}", left.get(key), right.get(key))
