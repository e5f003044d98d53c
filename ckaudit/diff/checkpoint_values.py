"""Checkpoint files as plain objects, and paired values of two; it imports nothing heavy."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ckaudit.contract.io.codec import decode
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import CheckpointFile, list_folder
from ckaudit.errors import UnreadableError

Document = dict[str, Any]

VERSION = "ck.analysis.v1"  # the contract's constant is in a module that takes as long to load as comparing two files

SECTIONS = frozenset({"time", "session", "cost", "history"})
"""Members of a checkpoint that are not compared; the black box repeats the lines of its steps, and a resume restarts it."""

SCALARS = frozenset(
    {
        "time",
        "session",
        "schema_version",
        "step_time",
        "rank_step_time",
        "step_time_tail",
        "tokens_per_sec",
        "mfu",
        "gpu_util",
        "gpu_mem_used",
        "rank_memory",
        "dataloader_stall_frac",
        "comm_time_frac",
        "compute_time_frac",
        "straggler_ratio",
        "checkpoint_time",
        "checkpoint_size",
        "restart_rate",
        "error_event_rate",
        "metrics_ingest_lag",
        "heartbeat_missing",
        "file_ok",
        "file_bytes",
        "file_time",
        "recording_share",
        "recording_seconds",
        "log_silence",
    }
)
"""Scalars by catalogue name."""

RANK_FACTS = frozenset({"step_time", "input_time", "compute_time", "comm_time", "heartbeat", "memory_used"})
"""Members that only one rank knows."""

POOLED = "constant_value"
"""Statistic of all checkpoints that a recorder has seen: one that takes up a run begins it anew, and the training goes on."""

BY_PLACE = ("weights", "gradients", "weight_deltas", "activations", "attention", "moe", "probes")
"""Sections with a member for each tensor, module, layer or probe."""

RECORDING = SECTIONS | {"schema_version", "triggers", "event_step", "left_out"}
"""Members that describe when, by what version, and why a file was written."""

_ORDER = ("data", "activations", "attention", "moe", "loss", "scalars", "gradients", "optimizer", "weight_deltas", "weights")

HUGE = 10**300


def checkpoints_of(folder: Path) -> dict[int, CheckpointFile]:
    """Return a run's merged checkpoint files by step."""
    files = list_folder(folder).checkpoints if folder.is_dir() else ()
    return {file.step: file for file in files if file.rank is None and file.step is not None}


def read_document(path: Path, shown: str) -> Document:
    """Return the content of a checkpoint file.

    Raises:
        UnreadableError: If it cannot be read, is no JSON object, or follows another contract.
    """
    return decoded(document_bytes(path, shown), shown)


def document_bytes(path: Path, shown: str) -> bytes:
    """Return the uncompressed bytes of a checkpoint file, or raise `UnreadableError`."""
    try:
        return read_bytes(path, shown)
    except BrokenFile as broken:
        raise UnreadableError(f"{shown} {broken}", hint="ckaudit validate says what is wrong with it.") from None


def decoded(data: bytes, shown: str) -> Document:
    """Return the content of a checkpoint file's bytes, or raise `UnreadableError`."""
    try:
        document = decode(data, msgspec.json.Decoder()).document
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise UnreadableError(f"{shown} is no JSON object", hint="ckaudit validate says what is wrong with it.")
    if document.get("schema_version") != VERSION or not isinstance(document.get("step"), int):
        raise UnreadableError(f"{shown} is no checkpoint of {VERSION}", hint="ckaudit validate says what it is.")
    return document


# Values that depend only on the time of writing and the speed of the machine: two identical computations differ in them.
def tells_time(name: str) -> bool:
    """Tell whether a scalar, with or without its label, does not depend on the computation.

    >>> tells_time("step_time/rank.3"), tells_time("train_loss_raw")
    (True, False)
    """
    return name.partition("/")[0] in SCALARS


# One traversal, for code that lists differences and code that counts them.
def values(
    left: Mapping[str, Any], right: Mapping[str, Any], *, without: Collection[str] = RECORDING
) -> Iterator[tuple[str, str | None, Any, Any]]:
    """Yield the values of both checkpoints, None for a missing one, in the order in which a step computes them.

    For a section with places, it yields each place with all its fields: section, place, both values. For others, it yields each
    value that is no object: dotted name, None, both values. Values that depend only on time are left out.

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
            yield from _scalar_values(section, one, other)


def _scalar_values(path: str, left: Any, right: Any) -> Iterator[tuple[str, None, Any, Any]]:
    if not isinstance(left, dict) or not isinstance(right, dict):
        yield path, None, left, right
        return
    for key in dict.fromkeys((*left, *right)):
        is_aside = (path == "scalars" and tells_time(key)) or (path == "rank_facts" and key in RANK_FACTS) or key == POOLED
        if not is_aside:
            yield from _scalar_values(f"{path}.{key}", left.get(key), right.get(key))


def is_number(value: Any) -> bool:
    """Tell whether a value is a number that a float can represent; an integer of a thousand digits counts as a string."""
    return isinstance(value, float) or (type(value) is int and abs(value) < HUGE)


def number_of(value: Any) -> float | None:
    """Return a number, or a string that represents one, as a float; None if it is neither."""
    if is_number(value):
        return float(value)
    return float(value) if value in ("NaN", "Infinity", "-Infinity") else None


def brief(value: Any, max_characters: int = 80) -> str:
    """Return a value as text, cut off if it is long."""
    text = str(value)
    return text if len(text) <= max_characters else text[: max_characters - 3] + "..."
