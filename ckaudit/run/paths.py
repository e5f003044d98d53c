"""Paths into a checkpoint, such as "gradients.*.norm", and decoders that skip all that no path asks for."""

from collections.abc import Iterable, Iterator
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.unknown_names import opened

ALWAYS = ("loss", "scalars.*")
WEIGHT_GRID = "weights.*.sampled_grid_32x32"
GRIDS = ("attention.*.sampled_qk_grid_32x32_per_head", "attention.*.sampled_qk_grid_32x32", WEIGHT_GRID)
"""Matrices that a metric may ask for."""
WEIGHT_SAMPLES = frozenset({WEIGHT_GRID, "weights.*.percentiles"})
"""What shows how far weights have come where nobody measured it: most of the text of some writers."""
WORDS = ("attention.*.kind_per_head", "weights.*.dtype", "activations.*.dtype", "rank_facts.parameter_hash", "optimizer.name")
"""Words that a metric may ask for: one of a known list is read as its place there, any other as a number made of it."""
NAMES = ("optimizer.trainable_without_optimizer",)
"""Lists of names that a metric may ask for: how many there are, and a column of ones for each."""

BOX = ("history.gradient_norms.*",)
"""What a metric may ask of the black boxes: a row of each step that they hold, whichever checkpoint has it."""


@cache
def fields(kind: type[Struct]) -> dict[str, Any]:
    """Return a type's fields with their types, constraints included."""
    return get_type_hints(kind, include_extras=True)


def struct_inside(hint: Any) -> type[Struct] | None:
    """Return the object type inside an optional, annotated or mapped type, None where there is none."""
    origin = get_origin(hint)
    if origin is Annotated:
        return struct_inside(get_args(hint)[0])
    if origin in (Union, UnionType):
        return next((found for part in get_args(hint) if part is not UnsetType and (found := struct_inside(part))), None)
    if origin is dict or origin is list:
        return struct_inside(get_args(hint)[-1])
    return hint if isinstance(hint, type) and issubclass(hint, Struct) else None


def is_mapping(hint: Any) -> bool:
    """Tell whether a type is a mapping from names, inside its options and annotations."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_mapping(get_args(hint)[0])
    if origin in (Union, UnionType):
        return any(is_mapping(part) for part in get_args(hint))
    return origin is dict


def is_numeric(hint: Any) -> bool:
    """Tell whether a type is a number or a flat list of numbers."""
    origin = get_origin(hint)
    if origin is Annotated:
        return is_numeric(get_args(hint)[0])
    if origin in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not UnsetType and get_origin(part) is not Literal]
        return bool(parts) and all(is_numeric(part) for part in parts)
    if origin is list:
        return is_numeric(get_args(hint)[0]) and get_origin(get_args(hint)[0]) is not list
    return hint in (int, float, bool)


@cache
def every_path() -> tuple[str, ...]:
    """Return the path of every number in a checkpoint, grids, histograms and the black box left out.

    What stands under `rank_facts` is read from the ranks' own files, a column for each.
    """
    return tuple(_paths())


def _paths() -> Iterator[str]:
    for name, hint in fields(Checkpoint).items():
        inner = struct_inside(hint)
        if name in ("history", "step", "session", "rank"):
            continue
        if inner is None:
            if is_mapping(hint):
                yield f"{name}.*"
            elif is_numeric(hint):
                yield name
            continue
        middle = ".*" if is_mapping(hint) else ""
        yield from (f"{name}{middle}.{field}" for field, part in fields(inner).items() if is_numeric(part))


@cache
def decoder(paths: frozenset[str]) -> msgspec.json.Decoder[Any]:
    """Return a decoder of checkpoints that keeps only the named paths, and each file's identity."""
    wanted: dict[str, set[str]] = {}
    for path in (*paths, *ALWAYS):
        section, _, rest = path.partition(".")
        wanted.setdefault(section, set()).add(rest.removeprefix("*.").removesuffix(".*"))
        if path in BOX:
            wanted[section].add("steps")
    hints = fields(opened(Checkpoint))
    kept: list[Any] = [("schema_version", hints["schema_version"]), ("step", hints["step"])]
    kept += [(name, hints[name], UNSET) for name in ("session", "rank", "time", "triggers", "event_step")]
    kept += [(name, _narrow(hints[name], inner), UNSET) for name, inner in wanted.items() if name in hints]
    return msgspec.json.Decoder(msgspec.defstruct("Projection", kept, kw_only=True, gc=False))


def _narrow(hint: Any, wanted: set[str]) -> Any:
    inner = struct_inside(hint)
    if inner is None:
        return hint
    own = fields(inner)
    narrowed = msgspec.defstruct(
        f"Some{inner.__name__}", [(name, own[name], UNSET) for name in own if name in wanted], kw_only=True, gc=False
    )
    return (dict[str, narrowed] if is_mapping(hint) else narrowed) | UnsetType  # type: ignore[valid-type]


def unknown_paths(paths: Iterable[str]) -> list[str]:
    """Return those of `paths` that no checkpoint can hold."""
    known = {*every_path(), *GRIDS, *WORDS, *NAMES, *BOX}
    return [path for path in paths if path not in known]
