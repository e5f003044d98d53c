"""Megatron-LM training statistics: sums over the values of each tensor, with a JSON line per iteration and kind.

`training_stats/<kind>/rank<n>.jsonl` holds {"iter": 10, "stat": "grad_raw_moments_by_param", "values": {tensor: {"count": n,
"sum_1": s, "sum_2": s, ...}}}, reduced over ranks: each rank writes the tensors that it owns. Norms, means and standard
deviations follow exactly. `tokens_per_expert/rank<n>.jsonl` holds the tokens of a rank's own experts at each micro-batch. `iter`
counts finished iterations. A checkpoint has no field for gradients of activations.
"""

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.layers.names import NORMS
from ckaudit.importers.layers.to_checkpoints import LayerStatistics
from ckaudit.importers.names import list_names, writable
from ckaudit.importers.tables.merge import merge
from ckaudit.importers.tables.numbers import MAX_STEP, number, step_number

NAME = "Megatron-LM training statistics"
GENERIC = False

_LINE = re.compile(rb'\s*\{\s*"iter"\s*:\s*\d+\s*,.{0,400}?"(?:values|tpe)"\s*:', re.DOTALL)
_FOLDERS = re.compile(r"\w+_raw_moments_by_(?:param|layer)|tokens_per_expert")
_SECTIONS = {
    "param_raw_moments_by_param": "weights",
    "grad_raw_moments_by_param": "gradients",
    "activation_raw_moments_by_layer": "activations",
    "residual_raw_moments_by_layer": "activations",
}
_OUTPUT = "/output0"


def detects(source: Source) -> bool:
    """Tell whether a file's first line is a statistic, or a folder holds such files by name."""
    if source.is_folder:
        return any(True for _ in _files(source))
    return _LINE.match(source.head) is not None and (b"_raw_moments" in source.head or b'"tpe"' in source.head)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a file, or all files of a folder as one run; `columns` must be empty.

    Raises:
        UnreadableError: Where no line holds a statistic.
        UsageError: Where `columns` names anything.
    """
    if columns:
        raise UsageError(f"{NAME} have no columns to map", hint="Leave --map out.")
    layers, files, torn, left = LayerStatistics(), 0, 0, dict[str, None]()
    of_experts, tables = False, dict[str, TensorSums]()
    for file in _files(source):
        files += 1
        for line in file.data.splitlines():
            record = _record(line)
            if record is None:
                torn += bool(line.strip())
            elif isinstance(record, dict) and "tpe" in record:
                of_experts = True
                _take_experts(layers, record)
            elif not _take(tables, record):
                left.setdefault(record.stat if isinstance(record, _Line) else str(record.get("stat")))
    for section, table in tables.items():
        table.hand(layers, section)
    if not layers:
        raise UnreadableError(f"{source.shown} holds no statistic of a tensor", hint="See --log-grad-raw-moments-by-param.")
    head = f"read as {NAME}: {files:,} file{'s' if files != 1 else ''}"
    notes = [head, *layers.notes(), *_notes_on_content(torn, list(left), of_experts=of_experts)]
    manifest = Manifest(schema_version="ck.run.v1", source=NAME)
    if tensors := layers.tensors():
        manifest.tensors = tensors
    return [Imported(merge([]).table, manifest, tuple(map(writable, notes)), NAME, documents=layers.documents())]


def _notes_on_content(torn: int, left: list[str], *, of_experts: bool) -> Iterator[str]:
    """Yield notes on what was left out of the files and on what they do not hold."""
    if torn:
        yield f"{torn:,} lines are no JSON, such as one that was cut off, and were left out"
    if left:
        yield f"left out, because a checkpoint has no field for them: {list_names(left)}"
    if of_experts:
        yield "the tokens of experts are those of the ranks whose files are there; with expert parallelism not all of them"
    yield "statistics of tensors only: loss, learning rate and times stand in another log of the same run"


def _files(source: Source) -> Iterator[Source]:
    """Yield the files of a folder by kind and rank, or the source if it is a file."""
    if not source.is_folder:
        yield source
        return
    inner = source.inside("training_stats")
    whole = inner if inner is not None and inner.is_folder else source
    for folder in sorted(folder.path for folder in (whole, *whole.folders()) if _FOLDERS.fullmatch(folder.path.name)):
        for path in sorted(folder.glob("rank*.jsonl"), key=lambda path: (len(path.name), path.name)):
            file = source.inside(str(path.relative_to(source.path)))
            if file is not None and not file.is_folder:
                yield file


class _Sums(Struct, gc=False):
    count: float
    sum_1: float
    sum_2: float


class _Line(Struct, gc=False):
    """A line as Megatron writes it; other members are ignored."""

    iter: int
    stat: str
    values: dict[str, _Sums]


class TensorSums:
    """Sums of all tensors of one section, one row per step and tensor."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.steps, self.owners = array("q"), array("q")
        self.sums = array("d")  # count, sum and sum of squares in turn

    def add(self, step: int, name: str, count: float, total: float, squares: float) -> None:
        """Add the sums of one tensor."""
        self.steps.append(step)
        self.owners.append(self.names.setdefault(name, len(self.names)))
        self.sums.extend((count, total, squares))

    def hand(self, layers: LayerStatistics, section: str) -> None:
        """Pass on mean, population standard deviation, norm and size; for activations, the RMS instead of norm and size."""
        sums = np.array(self.sums).reshape(-1, 3)
        steps, owners = np.array(self.steps), np.array(self.owners)
        known = (sums[:, 0] >= 1) & np.isfinite(sums[:, 0]) & ~(sums[:, 2] < 0)
        count, total, squares = sums[known].T
        with np.errstate(all="ignore"):
            mean, square = total / count, squares / count
            spread = np.maximum(square - mean * mean, 0.0)
            statistics = {"mean": mean, "std": np.sqrt(np.where(np.isnan(square - mean * mean), np.nan, spread))}
            if section == "activations":
                statistics["rms"] = np.sqrt(square)
            else:
                statistics |= {NORMS[section]: np.sqrt(squares), "numel": count}
        for field, values in statistics.items():
            layers.extend(section, field, list(self.names), steps[known], owners[known], values)


def _record(line: bytes) -> "_Line | dict[str, Any] | None":
    """Return a line as Megatron writes it, else as a JSON object; None where it is neither."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _take(tables: dict[str, TensorSums], record: "_Line | Mapping[str, Any]") -> bool:
    """Add the sums of one line; return whether a checkpoint has a section for its kind."""
    if isinstance(record, _Line):
        stat, step, values = record.stat, record.iter, record.values
        rows = [(name, sums.count, sums.sum_1, sums.sum_2) for name, sums in values.items()]
    else:
        stat, number_of, members = str(record.get("stat")), step_number(number(record.get("iter"))), record.get("values")
        step = -1 if number_of is None else number_of
        rows = list(_read_sums(members if isinstance(members, dict) else {}))
    section = _SECTIONS.get(stat)
    if section is None or not 0 <= step <= MAX_STEP:
        return False
    table = tables.setdefault(section, TensorSums())
    for name, count, total, squares in rows:
        if section != "activations":
            table.add(step, name, count, total, squares)
        elif name.endswith(_OUTPUT):
            table.add(step, name.removesuffix(_OUTPUT), count, total, squares)
    return True


def _read_sums(values: Mapping[str, Any]) -> Iterator[tuple[str, float, float, float]]:
    for name, sums in values.items():
        parts = [number(sums.get(key)) for key in ("count", "sum_1", "sum_2")] if isinstance(sums, dict) else [None]
        if None not in parts:
            count, total, squares = (float(part) for part in parts if part is not None)
            yield writable(name), count, total, squares


_DECODER = msgspec.json.Decoder(_Line)


def _take_experts(layers: LayerStatistics, record: Mapping[str, Any]) -> None:
    step, depth = step_number(number(record.get("iter"))), step_number(number(record.get("layer")))
    batches = record.get("tpe")
    if step is None or depth is None or not isinstance(batches, list):
        return
    block = "" if record.get("block") in (None, "decoder") else f"{writable(str(record['block']))}.{record.get('mtp_idx', 0)}."
    rows = [batch for batch in batches if isinstance(batch, list) and batch and len(batch) == len(batches[0])]
    for expert, tokens in enumerate(zip(*rows, strict=True)):
        known = [count for token in tokens if (count := number(token)) is not None]
        layers.put(step, "moe", f"{block}layer.{depth}", "counts", sum(known), index=expert)
