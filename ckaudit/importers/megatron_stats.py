"""Megatron-LM training statistics: sums over the values of each tensor, a JSON line per iteration and kind.

`training_stats/<kind>/rank<n>.jsonl` holds {"iter": 10, "stat": "grad_raw_moments_by_param", "values": {tensor: {"count": n,
"sum_1": s, "sum_2": s, ...}}}, reduced over ranks: each rank writes the tensors it owns. Norms, means and deviations follow
exactly. `tokens_per_expert/rank<n>.jsonl` holds the tokens of a rank's own experts at each micro-batch. `iter` counts
finished iterations. Gradients of activations have no place in a checkpoint.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ckaudit.contract.manifest import Manifest
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.bins import Moments
from ckaudit.importers.cells import number, step_number
from ckaudit.importers.imported import Imported
from ckaudit.importers.layers import Layers
from ckaudit.importers.merge import merge
from ckaudit.importers.names import listed, writable
from ckaudit.importers.source import Source

NAME = "Megatron-LM training statistics"
GENERIC = False

_LINE = re.compile(rb'\s*\{\s*"iter"\s*:\s*\d+\s*,.{0,400}?"(?:values|tpe)"\s*:', re.DOTALL)
_FOLDERS = re.compile(r"\w+_raw_moments_by_(?:param|layer)|tokens_per_expert")
_SECTIONS = {
    "param_raw_moments_by_param": "weights", "grad_raw_moments_by_param": "gradients",
    "activation_raw_moments_by_layer": "activations", "residual_raw_moments_by_layer": "activations",
}  # fmt: skip
_OUTPUT = "/output0"


def detects(source: Source) -> bool:
    """Tell a file by its first line, a folder by those in it."""
    if source.is_folder:
        return any(True for _ in _files(source))
    return _LINE.match(source.head) is not None and (b"_raw_moments" in source.head or b'"tpe"' in source.head)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read a file, or all of a folder of statistics as one run; `columns` may name nothing.

    Raises:
        UnreadableError: Where no line holds a statistic.
        UsageError: Where `columns` names anything.
    """
    if columns:
        raise UsageError(f"{NAME} have no columns to map", hint="Leave --map out.")
    layers, files, torn, left = Layers(), 0, 0, dict[str, None]()
    of_experts = set()
    for file in _files(source):
        files += 1
        for line in file.data.splitlines():
            record = _record(line)
            torn += record is None and bool(line.strip())
            if record is not None and "tpe" in record:
                of_experts.add(file.path.name)
                _take_experts(layers, record)
            elif record is not None and not _take(layers, record):
                left.setdefault(str(record.get("stat")))
    if not layers:
        raise UnreadableError(f"{source.shown} holds no statistic of a tensor", hint="See --log-grad-raw-moments-by-param.")
    notes = [f"read as {NAME}: {files:,} files", *layers.notes()]
    if torn:
        notes.append(f"{torn:,} lines are no JSON, such as one that was cut off, and were left out")
    if left:
        notes.append(f"left out, because a checkpoint has no field for them: {listed(list(left))}")
    if of_experts:
        notes.append(
            "the tokens of experts are those of the ranks whose files are there; with expert parallelism not all of them"
        )
    notes.append("statistics of tensors only: loss, learning rate and times stand in another log of the same run")
    manifest = Manifest(schema_version="ck.run.v1", source=NAME)
    if tensors := layers.tensors():
        manifest.tensors = tensors
    return [Imported(merge([]).table, manifest, tuple(map(writable, notes)), NAME, documents=layers.documents())]


def _files(source: Source) -> Iterator[Source]:
    """Yield the files of a folder, by kind and rank, or the one that was named."""
    if not source.is_folder:
        yield source
        return
    whole = (source.inside("training_stats") or source).path
    for folder in sorted(each for each in (whole, *whole.iterdir()) if _FOLDERS.fullmatch(each.name)):
        for path in sorted(folder.glob("rank*.jsonl"), key=lambda each: (len(each.name), each.name)):
            found = source.inside(str(path.relative_to(source.path)))
            if found is not None and not found.is_folder:
                yield found


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _take(layers: Layers, record: Mapping[str, Any]) -> bool:
    """Take the sums of one line; tell whether a checkpoint has a section for its kind."""
    section, step = _SECTIONS.get(str(record.get("stat"))), step_number(number(record.get("iter")))
    values = record.get("values")
    if section is None or step is None or not isinstance(values, dict):
        return False
    for name, sums in values.items():
        if not isinstance(sums, dict) or (section == "activations" and not name.endswith(_OUTPUT)):
            continue
        parts = [number(sums.get(key)) for key in ("count", "sum_1", "sum_2")]
        if None not in parts and parts[0] != 0:
            layers.take_moments(step, section, name.removesuffix(_OUTPUT), Moments(*map(float, parts)))  # type: ignore[arg-type]
    return True


def _take_experts(layers: Layers, record: Mapping[str, Any]) -> None:
    step, depth = step_number(number(record.get("iter"))), step_number(number(record.get("layer")))
    batches = record.get("tpe")
    if step is None or depth is None or not isinstance(batches, list):
        return
    block = "" if record.get("block") in (None, "decoder") else f"{writable(str(record['block']))}.{record.get('mtp_idx', 0)}."
    rows = [each for each in batches if isinstance(each, list) and each and len(each) == len(batches[0])]
    for expert, tokens in enumerate(zip(*rows, strict=True)):
        known = [count for each in tokens if (count := number(each)) is not None]
        layers.put(step, "moe", f"{block}layer.{depth}", "counts", sum(known), index=expert)
