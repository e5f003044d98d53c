"""C-Kernel-Engine: the JSON artifacts of a training, either a single file or a folder with several that form one run.

`training_loss_curve*.json` holds a row per optimizer step, or per micro-step where the generated C runtime wrote it;
`training_grad_norms*.json` the norm of each tensor, `training_parity*.json` the difference from PyTorch,
`training_step_profile*.json` sums over the run, `run_ledger.jsonl` lines per stage whose last record counts, and
`analysis_checkpoints_latest.json` checkpoints that the viewer merged and stamped with the version. Times are in milliseconds.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, field

from ckaudit.contract.io.codec import decode
from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.io.folder import list_folder
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.ckernel_artifacts import (
    LEDGER,
    LossCurve,
    Object,
    Placeholders,
    loss_curve_of,
    manifest_of,
    norm_rows,
    objects,
    parity_sections,
    positive,
    read_ledger,
    stages_of,
    updates_per_row,
)
from ckaudit.importers.importer import Document, Imported, Source
from ckaudit.importers.layers.to_checkpoints import LayerStatistics
from ckaudit.importers.notes_on_names import notes_on_left_out
from ckaudit.importers.tables.merge import MergedLines, merge_columns, merge_notes
from ckaudit.importers.tables.numbers import number, step_number

NAME = "C-Kernel-Engine training artifacts"
GENERIC = False

_STEMS = ("training_loss_curve", "training_grad_norms", "training_parity", "training_step_profile", "analysis_checkpoints")
_MARKS = re.compile(rb'"loss_ck"|"max_param_diff"|"ck_total_ms"|"final_ck_loss"|"ck\.run_ledger\.v1"')
_STEP_LIST = re.compile(rb'\s*\{\s*"steps"\s*:\s*\[\s*\d')
_DECODER = msgspec.json.Decoder()
_LEFT = ("logits_max_abs_diff", "first_bad_tensor", "mean_param_diff", "torch_step_ms", "decode_tok_s")


Line = tuple[int, dict[str, float]]


class Artifacts(Struct):
    """The contents of one training's artifacts."""

    curve: list[Object] = field(default_factory=list)
    curve_source: str = ""
    norms: Object = field(default_factory=dict)
    parity: list[Object] = field(default_factory=list)
    parity_source: str = ""
    profile: Object = field(default_factory=dict)
    summary: Object = field(default_factory=dict)
    checkpoints: list[Object] = field(default_factory=list)
    ledger: list[Object] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def detects(source: Source) -> bool:
    """Tell whether a file has members that only these artifacts have, or a folder has files with their names."""
    if source.is_folder:
        return any(_named(source, stem) for stem in _STEMS[:4]) or source.inside(LEDGER) is not None
    head = source.head.removeprefix(b"\xef\xbb\xbf")
    if not head.lstrip().startswith(b"{"):
        return False
    merged = b'"checkpoints"' in head and b"ck.analysis.v" in head
    return bool(_MARKS.search(head)) or merged or (bool(_STEP_LIST.match(head)) and b'"params"' in source.data)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read an artifact or those of a folder; `columns` must be empty, because each member has one meaning.

    Raises:
        UnreadableError: Where an artifact is truncated, or none holds a value.
        UsageError: Where `columns` names anything.
    """
    if columns:
        raise UsageError(f"the members of {NAME} need no --map", hint="Leave it out.")
    parts = Artifacts()
    for file in _files(source):
        _take(parts, file)
    runs = [_run(parts, rows, name) for rows, name in _stages(parts.curve)]
    importeds = [run for run in runs if len(run.table.steps) or run.documents] or stages_of(parts.ledger, NAME, parts.notes)
    if not importeds:
        raise UnreadableError(f"{source.shown} holds no value of any step", hint="Look whether the training ran.")
    return importeds


def _named(source: Source, stem: str) -> Source | None:
    """Return the artifact of a kind in a folder; the latest one comes first."""
    names = sorted(path.name for path in source.path.glob(f"{stem}*.json"))
    best = [f"{stem}_latest.json", f"{stem}.json", *reversed(names)]
    return next((file for name in best if (file := source.inside(name)) is not None and not file.is_folder), None)


def _files(source: Source) -> Iterator[Source]:
    if not source.is_folder:
        yield source
        return
    for stem in _STEMS:
        if (file := _named(source, stem)) is not None:
            yield file
    if (ledger := source.inside(LEDGER)) is not None:
        yield ledger
    for checkpoint in list_folder(source.path).checkpoints:
        if checkpoint.rank is None and (file := source.inside(checkpoint.path.name)) is not None:
            yield file


def _take(parts: Artifacts, file: Source) -> None:
    """Add the contents of an artifact of any kind to the parts."""
    if b'"ck.run_ledger.v1"' in file.head or file.path.name.endswith(".jsonl"):
        parts.ledger, torn = read_ledger(file.data)
        if torn:
            parts.notes.append(f"{torn:,} lines of {file.shown} are no JSON and were left out")
        return
    document = _document(file)
    source = str(document.get("source", ""))
    steps = objects(document.get("steps"))
    if CHECKPOINT_NAME.match(file.path.name):
        parts.checkpoints.append(document)
    elif "checkpoints" in document and b"ck.analysis.v" in file.head:
        parts.checkpoints = objects(document["checkpoints"])
    elif "final_ck_loss" in document or "loss_curve" in document:
        parts.summary, parts.curve = document, objects(document.get("loss_curve"))
        parts.parity = objects(document.get("parity_steps"))
        parts.norms, parts.profile = _object(document.get("grad_norm_series")), _object(document.get("step_profile"))
    elif "ck_total_ms" in document:
        parts.profile = document
    elif any("loss_ck" in row for row in steps):
        parts.curve, parts.curve_source = steps, source
    elif steps:
        parts.parity, parts.parity_source = steps, source
    elif "params" in document:
        parts.norms = document


def _object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _document(file: Source) -> Object:
    """Return the JSON object of a file; bare NaN and Infinity, as Python and C print them, are accepted."""
    try:
        document = decode(file.document, _DECODER).document
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        cut = "truncated" in str(error) or not file.data.rstrip().endswith(b"}")
        what = "ends in the middle, so it was only half written" if cut else f"is not JSON that can be read: {error}"
        raise UnreadableError(f"{file.shown} {what}", hint="Let the training write it again, or name another artifact.") from None
    return _object(document)


def _stages(rows: list[Object]) -> list[tuple[list[Object], str]]:
    """Split a curve where another stage begins and its step goes back or stays."""
    stages: list[tuple[list[Object], str]] = []
    last = -1
    for row in rows:
        stage, step = str(row.get("source_stage") or ""), step_number(number(row.get("step")))
        if not stages or (stage != stages[-1][1] and step is not None and step <= last):
            stages.append(([], stage))
        stages[-1][0].append(row)
        last = last if step is None else step
    return stages if len(stages) > 1 else [(rows, "")]


def _run(parts: Artifacts, rows: list[Object], name: str) -> Imported:
    """Return the run that consists of a curve and all artifacts beside it."""
    empty, layers = Placeholders(), LayerStatistics()
    span = updates_per_row(rows, parts.profile, parts.summary)
    totals = _norms(parts.norms, span, layers, empty) if not name else {}
    curve = loss_curve_of(rows, parts.curve_source, span, empty)
    profiled = _profiled(parts.profile, span, with_curve=bool(rows))
    merged = _merged(curve, totals, profiled)
    documents, document_notes = _documents(parts, rows, span, layers, empty, alone=not name)
    known = [name for name in _LEFT if any(number(row.get(name)) for row in (*rows[:100], *parts.parity[:100], parts.profile))]
    notes = [
        f"read as {NAME}: {_summary(parts, rows)}",
        *([f"the curve has a row for each of {span} micro-steps of an update: they were joined"] if span > 1 else []),
        *empty.notes(),
        *document_notes,
        *layers.notes(),
        *merge_notes(merged),
        *notes_on_left_out(known),
        *parts.notes,
    ]
    return Imported(
        merged.table, manifest_of(NAME, parts.ledger, parts.summary, layers.tensors()), tuple(notes), NAME, name, documents
    )


def _merged(curve: LossCurve, totals: dict[int, float], profiled: list[Line]) -> MergedLines:
    """Return the lines of a curve, with the norms that it lacks, and with the profile if that belongs to the last step."""
    steps, values = curve.steps, curve.values
    values["grad_global_norm"] = [
        totals.get(step) if norm is None else norm for step, norm in zip(steps, values["grad_global_norm"], strict=True)
    ]
    logged = set(steps)
    more: list[Line] = [(step, {"grad_global_norm": total}) for step, total in sorted(totals.items()) if step not in logged]
    if not steps or (profiled and profiled[0][0] == steps[-1]):
        more += profiled
    if not more:
        return merge_columns(steps, values)
    names = list(dict.fromkeys([*values, *(name for _, line in more for name in line)]))
    blank: list[float | None] = [None] * len(steps)
    columns = {name: [*values.get(name, blank), *(line.get(name) for _, line in more)] for name in names}
    if len(more) == 1 and steps and more[0][0] == steps[-1]:
        columns = {name: [*column[:-2], column[-2] if column[-1] is None else column[-1]] for name, column in columns.items()}
        return merge_columns(steps, columns)
    return merge_columns([*steps, *(step for step, _ in more)], columns)


def _norms(norms: Object, span: int, layers: LayerStatistics, empty: Placeholders) -> dict[int, float]:
    """Add the norm of each tensor to the layers, and return the global norm by update."""
    totals = {}
    for step, total, tensors in norm_rows(norms, empty):
        update = -(-step // span)
        if total is not None:
            totals[update] = total
        for tensor, value in tensors.items():
            layers.put(update, "gradients", tensor, "norm", value)
    return totals


def _profiled(profile: Object, span: int, *, with_curve: bool) -> list[Line]:
    """Return the step profile's values at the last step: the tokens seen, and without a curve the speed and the step time."""
    steps = step_number(number(profile.get("optimizer_steps", profile.get("steps"))))
    if not steps:
        return []
    step = steps if "optimizer_steps" in profile else -(-steps // span)
    values = {"tokens_seen": positive(profile.get("processed_tokens"))}
    if not with_curve:
        values |= {
            "tokens_per_update": positive(profile.get("tokens_per_update")),
            "tokens_per_sec": positive(profile.get("train_tok_s")),
        }
        time = positive(profile.get("ck_avg_step_ms"))
        values["step_time"] = None if time is None else time / 1000
    return [(step, {name: value for name, value in values.items() if value is not None})] if any(values.values()) else []


def _documents(
    parts: Artifacts, rows: list[Object], span: int, layers: LayerStatistics, empty: Placeholders, *, alone: bool
) -> tuple[list[Document], list[str]]:
    """Return checkpoints in step order, with gradients, parity and the sections that the viewer merged."""
    from ckaudit.contract.schema.checkpoint import VERSION, Checkpoint

    by_step: dict[int, dict[str, Any]] = {}
    broken = 0
    for checkpoint in parts.checkpoints if alone else ():
        step = step_number(number(checkpoint.get("step")))
        try:
            msgspec.convert({**checkpoint, "schema_version": VERSION}, Checkpoint, strict=False)
        except msgspec.ValidationError:
            step = None
        broken += step is None
        if step is not None:
            by_step.setdefault(step, {**checkpoint, "step": step, "schema_version": VERSION})
    for document in layers.documents():
        _add(by_step, document)
    compared = parity_sections(parts.parity if alone else [], rows, parts.parity_source or parts.curve_source, empty)
    for step, section in compared.items():
        _add(by_step, {"step": -(-step // span), "parity": section})
    notes = [f"{broken:,} checkpoints do not follow {VERSION}, or have no step, and were left out"] if broken else []
    return [by_step[step] for step in sorted(by_step)], notes


def _add(by_step: dict[int, dict[str, Any]], document: Mapping[str, Any]) -> None:
    """Add the sections of a checkpoint; sections that are already there stay."""
    held = by_step.setdefault(document["step"], {"step": document["step"]})
    for section, entries in document.items():
        held.setdefault(section, entries)


def _summary(parts: Artifacts, rows: list[Object]) -> str:
    counts = {
        "steps of a loss curve": len(rows),
        "of gradient norms": len(parts.norms.get("steps") or ()),
        "of parity": len(parts.parity),
        "checkpoints": len(parts.checkpoints),
        "stages in the ledger": len(parts.ledger),
    }
    parts_of_summary = [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join([*parts_of_summary, *(["a step profile"] if parts.profile else [])]) or "nothing"
