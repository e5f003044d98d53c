"""Every field of `ck.analysis.v1` as a path, such as weights.*.mean: what checks, metrics and rules say they read."""

from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

from ckaudit.contract.schema.analysis import Checkpoint
from ckaudit.contract.schema.tensors import BinRange, Histogram, PackedGrid

WHOLE = (BinRange, Histogram, PackedGrid)


@cache
def fields() -> dict[str, str]:
    """Return the meaning of each field by its path; histograms and grids are read whole.

    In a path `*` stands for the name of a tensor, layer or probe, and `[]` for an index.

    >>> fields()["optimizer.groups[].weight_decay"]
    'Weight decay.'
    """
    return dict(_paths(Checkpoint, ""))


def _paths(kind: type[Struct], prefix: str) -> list[tuple[str, str]]:
    """Return path and meaning of each field below `prefix`."""
    found = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, between = _struct(hint)
        if inner is None or inner in WHOLE:
            found.append((prefix + name, _meaning(hint)))
        else:
            found += _paths(inner, f"{prefix}{name}{between}.")
    return found


def _struct(hint: Any, between: str = "") -> tuple[type[Struct] | None, str]:
    """Return the object that a field holds, one or many, and what stands for its name or index in a path."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner:
        return (hint, between) if issubclass(hint, Struct) else (None, "")
    if origin is dict:
        return _struct(inner[1], between + ".*")
    if origin is list:
        return _struct(inner[0], between + "[]")
    choices = inner[:1] if origin is Annotated else inner
    found = [each for choice in choices if (each := _struct(choice, between))[0] is not None]
    return found[0] if found else (None, "")


def _meaning(hint: Any) -> str:
    """Return the description of a field: the one nearest to it."""
    for part in getattr(hint, "__metadata__", ()):
        if part.description:
            return str(part.description)
    return next((text for choice in get_args(hint) if (text := _meaning(choice))), "")
