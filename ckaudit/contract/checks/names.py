"""Names that refer to something: tied tensors, hashes, omitted paths, the rank of a shard; and the path of every field."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import UNSET, Struct

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.schema.checkpoint import BinRange, Checkpoint, Histogram, PackedGrid
from ckaudit.contract.schema.report import Finding

_HASH = re.compile(r"[A-Za-z0-9_-]+:[0-9A-Fa-f]+")

UNDIVIDED = (BinRange, Histogram, PackedGrid)


@check(
    kinds.TENSOR_MISSING,
    reads=("weights.*.tied_to", "parity.worst_tensor", "parity.gradient_worst_tensor", "optimizer.trainable_without_optimizer"),
)
def tensor_name(subject: CheckInput) -> Iterator[Finding]:
    """A named tensor exists; only a complete list of weights can show that."""
    document = subject.document
    weights = subject.entries("weights")
    named: list[tuple[PointerParts, str]] = [
        (("weights", name, "tied_to"), other) for name, other in subject.table("weights").recorded("tied_to")
    ]
    if document.parity is not UNSET and weights:
        worst_tensors = {field: getattr(document.parity, field) for field in ("worst_tensor", "gradient_worst_tensor")}
        named += [(("parity", field), name) for field, name in worst_tensors.items() if name is not UNSET]
    if document.optimizer is not UNSET and weights:
        alone = document.optimizer.trainable_without_optimizer or []
        named += [(("optimizer", "trainable_without_optimizer", index), name) for index, name in enumerate(alone)]
    for place, name in named:
        if name not in weights:
            yield subject.find(kinds.TENSOR_MISSING, place, "a tensor of this file", name, where=name)
        elif place[1] == name:
            yield subject.find(kinds.TENSOR_MISSING, place, "another tensor", name)


@check(
    kinds.HASH_FORMAT,
    reads=(
        "weights.*.hash",
        "gradients.*.hash",
        "data.input_hash",
        "probes.*.hash",
        "rank_facts.parameter_hash",
        "rank_facts.data_hash",
    ),
)
def hashes(subject: CheckInput) -> Iterator[Finding]:
    """The hash of a tensor is algorithm:hex; other hashes may have any form but must not be empty."""
    document = subject.document
    for section in ("weights", "gradients"):
        for name, value in subject.table(section).recorded("hash"):
            if not _HASH.fullmatch(value):
                yield subject.find(kinds.HASH_FORMAT, (section, name, "hash"), "algorithm:hex", repr(value))
    others: list[tuple[PointerParts, object]] = [
        (("probes", name, "hash"), probe.hash) for name, probe in (document.probes or {}).items()
    ]
    if document.data is not UNSET:
        others.append((("data", "input_hash"), document.data.input_hash))
    if document.rank_facts is not UNSET:
        others += [(("rank_facts", name), getattr(document.rank_facts, name)) for name in ("parameter_hash", "data_hash")]
    for place, text in others:
        if text == "":
            yield subject.find(kinds.HASH_FORMAT, place, "a hash, or no field", "empty")


TEXTS: tuple[PointerParts, ...] = (
    ("model_scale_hint",),
    ("optimizer", "name"),
    ("data", "source"),
    ("data", "batch_id"),
    ("parity", "reference"),
)


@check(kinds.EMPTY_TEXT, reads=tuple(".".join(map(str, place)) for place in TEXTS))
def text(subject: CheckInput) -> Iterator[Finding]:
    """A name is not empty."""
    for place in TEXTS:
        value: object = subject.document
        for key in place:
            value = getattr(value, str(key), UNSET)
        if value == "":
            yield subject.find(kinds.EMPTY_TEXT, place, "a name, or no field", "empty")


@check(kinds.LEFT_OUT_PATH, reads=("left_out",))
def left_out(subject: CheckInput) -> Iterator[Finding]:
    """A field that a budget leaves out is named by a path of the contract."""
    for index, path in enumerate(subject.document.left_out or []):
        if not _known(path):
            yield subject.find(kinds.LEFT_OUT_PATH, ("left_out", index), "a path such as weights.*.histogram", path)


def _known(path: str) -> bool:
    """Tell whether a path, with * or a tensor's name in the middle, refers to a field or a whole section."""
    first, _, rest = path.partition(".")
    last = rest.rpartition(".")[2]
    known = fields()
    return (
        path in known
        or f"{first}.*.{last}" in known
        or (rest in ("", "*") and any(field.startswith(first + ".") for field in known))
    )


@check(kinds.PLACEMENT, reads=("weights.*.placement", "gradients.*.placement", "rank"))
def placement(subject: CheckInput) -> Iterator[Finding]:
    """A shard of a tensor is described in a per-rank file, never in the merged one."""
    if subject.document.rank is not UNSET:
        return
    for section in ("weights", "gradients"):
        for name, where in subject.table(section).recorded("placement"):
            if where in ("shard", "partial"):
                yield subject.find(kinds.PLACEMENT, (section, name, "placement"), "replicated in a file without a rank", where)


@cache
def fields() -> dict[str, str]:
    """Return the meaning of each field by its path; histograms and grids count as single fields.

    In a path, `*` stands for the name of a tensor, layer or probe, and `[]` for an index.

    >>> fields()["optimizer.groups[].weight_decay"]
    'Weight decay.'
    """
    return dict(_paths(Checkpoint, ""))


def _paths(kind: type[Struct], prefix: str) -> list[tuple[str, str]]:
    """Return path and meaning of each field below `prefix`."""
    paths = []
    for name, hint in get_type_hints(kind, include_extras=True).items():
        inner, between = _struct(hint)
        if inner is None or inner in UNDIVIDED:
            paths.append((prefix + name, _meaning(hint)))
        else:
            paths += _paths(inner, f"{prefix}{name}{between}.")
    return paths


def _struct(hint: Any, between: str = "") -> tuple[type[Struct] | None, str]:
    """Return the struct inside a field, and the placeholder of its name or index in a path."""
    origin, inner = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and not inner:
        return (hint, between) if issubclass(hint, Struct) else (None, "")
    if origin is dict:
        return _struct(inner[1], between + ".*")
    if origin is list:
        return _struct(inner[0], between + "[]")
    choices = inner[:1] if origin is Annotated else inner
    structs = [inside for choice in choices if (inside := _struct(choice, between))[0] is not None]
    return structs[0] if structs else (None, "")


def _meaning(hint: Any) -> str:
    """Return the description of a field; of nested ones the outermost."""
    for part in getattr(hint, "__metadata__", ()):
        if part.description:
            return str(part.description)
    return next((text for choice in get_args(hint) if (text := _meaning(choice))), "")
