"""A folder of torch.distributed.checkpoint: `.metadata` maps pieces of tensors to ranges of files."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.report import Finding
from ckaudit.resume.catalogue import CUT_OFF, DAMAGED, INDEX, SHARD_MISSING
from ckaudit.resume.content import BadPickle, Content, DictPairs, PickledCall
from ckaudit.resume.open_file import FileFault, OpenFile, Unjudged, is_there, stays_inside
from ckaudit.resume.pickled import MAX_BYTES, read_pickle
from ckaudit.resume.tensor_files import read_torch


class ShardEntry(Struct, frozen=True):
    """One entry: a piece of a tensor, or a value, in a range of a file."""

    name: str
    file: str
    offset: int
    size: int


class ShardIndex(Struct):
    """The content of `.metadata`.

    Attributes:
        content: Names that unpickling it would import.
        pieces: Entries by file.
        wanted: Number of pieces of each name.
    """

    content: Content
    pieces: dict[str, list[ShardEntry]]
    wanted: dict[str, int]


def read_metadata(source: OpenFile) -> ShardIndex:
    """Return the content of `.metadata`.

    Raises:
        FileFault: If it is damaged.
        Unjudged: If the pieces are transformed, compressed for instance.
    """
    if source.size > MAX_BYTES:
        raise Unjudged(f"has {source.size:,} bytes; the limit is {MAX_BYTES:,}")
    try:
        facts = read_pickle(source.read(0, source.size))
    except BadPickle as error:
        raise FileFault(DAMAGED, f"is a broken pickle: {error}") from None
    content = Content(form="distributed", value=None, names=facts.names, called=facts.called)
    plan = ShardIndex(content, {}, {})
    for key, value in _pairs(_field(facts.value, "storage_data")):
        piece = _piece(key, value)
        plan.pieces.setdefault(piece.file, []).append(piece)
    for key, value in _pairs(_field(facts.value, "state_dict_metadata")):
        chunks = _field(value, "chunks")
        plan.wanted[str(key)] = len(chunks) if isinstance(chunks, list) else 1
    if not plan.pieces:
        raise FileFault(DAMAGED, "names no tensor and no file")
    return plan


def missing_pieces(plan: ShardIndex, file: str) -> list[Finding]:
    """Return findings for tensors with fewer stored pieces than they consist of."""
    stored = Counter(piece.name for pieces in plan.pieces.values() for piece in pieces)
    short = [name for name, count in plan.wanted.items() if stored[name] < count]
    if not short:
        return []
    name = short[0]
    more = f", and {len(short) - 1:,} other tensors are not whole" if len(short) > 1 else ""
    message = f"stores {stored[name]} of {plan.wanted[name]} pieces of {name}{more}"
    return [INDEX.at(file, message, where=name, also=short[1:50])]


def read_pieces(
    folder: Path, plan: ShardIndex, shown: str, root: Path, take: Callable[[OpenFile, Content], None]
) -> list[tuple[str, FileFault]]:
    """Read every piece and pass it on with its open file; return the faults, each with the name of its file.

    Args:
        folder: The folder of the checkpoint.
        plan: The content of `.metadata`.
        shown: Prefix of the names of files.
        root: The folder that links must not leave.
        take: Called with each piece, named in full.
    """
    wrong: list[tuple[str, FileFault]] = []
    for name, pieces in sorted(plan.pieces.items()):
        path = folder / name
        if not stays_inside(name):
            wrong.append((shown + ".metadata", FileFault(DAMAGED, f"names a file outside of its folder: {name!r}")))
            continue
        try:
            with OpenFile(path, shown + name, root) as source:
                _read_file(source, pieces, take)
        except FileFault as trouble:
            missing = not is_there(path)
            wrong.append((shown + name, FileFault(SHARD_MISSING, "is missing: .metadata names it") if missing else trouble))
    return wrong


def _read_file(source: OpenFile, pieces: list[ShardEntry], take: Callable[[OpenFile, Content], None]) -> None:
    for piece in sorted(pieces, key=lambda piece: piece.offset):
        if piece.offset + piece.size > source.size:
            end = piece.offset + piece.size
            raise FileFault(CUT_OFF, f"has {source.size:,} bytes, where {piece.name} ends at {end:,}")
        content = read_torch(source, piece.offset, piece.size)
        keys = tuple(piece.name.split("."))
        content.tensors = [replace(tensor, keys=(*keys, *tensor.keys)) for tensor in content.tensors]
        value = content.value
        for key in reversed(keys[:64]):
            value = DictPairs([(key, value)])
        content.value = value
        take(source, content)


def _piece(key: Any, value: Any) -> ShardEntry:
    name, file = _field(key, "fqn"), _field(value, "relative_path")
    offset, size = _field(value, "offset"), _field(value, "length")
    if not (isinstance(name, str) and isinstance(file, str)) or not (_is_size(offset) and _is_size(size)):
        raise FileFault(DAMAGED, "does not say where its tensors stand")
    if _field(value, "transform_descriptors"):
        raise Unjudged("holds pieces that are transformed, compressed for instance")
    return ShardEntry(name, file, offset, size)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _field(record: Any, name: str) -> Any:
    """Return an attribute of a recorded object, or None."""
    state = record.state if isinstance(record, PickledCall) else None
    state = state[1] if isinstance(state, tuple) and len(state) == 2 else state  # (dict, slots)
    return state.get(name) if isinstance(state, DictPairs) else None


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return value.items if isinstance(value, DictPairs) else []
