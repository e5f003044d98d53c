"""The ledger of C-Kernel-Engine: a line whenever a stage of a training starts or ends; the last line of a run counts."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ckaudit.contract.io.decode import decode
from ckaudit.contract.schema.manifest import Manifest, Session, TensorFacts
from ckaudit.importers.ckernel.parts import Object
from ckaudit.importers.imported import Imported
from ckaudit.importers.tables.merge import Entry, merge
from ckaudit.importers.tables.numbers import number, step_number

LEDGER = "run_ledger.jsonl"
_CONFIG = ("dataset_name", "stage_id", "pack_mode", "total_tokens", "optimizer", "epochs", "grad_accum", "backend", "lr")
_DECODER = msgspec.json.Decoder()


def read_ledger(data: bytes) -> tuple[list[Object], int]:
    """Return the last record of each run in their order, and how many lines are no JSON, such as one that was cut off."""
    records: dict[str, Object] = {}
    torn = 0
    for line in data.splitlines():
        try:
            record = decode(line, _DECODER).document if line.strip() else None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            torn += 1
            continue
        if isinstance(record, dict) and record.get("run_id"):
            records[str(record["run_id"])] = record
    return list(records.values()), torn


def stages_of(ledger: Sequence[Object], source: str, notes: Sequence[str]) -> list[Imported]:
    """Return the stages of a ledger without a curve beside it, each with the three losses it tells."""
    runs = []
    for record in ledger:
        points = {"loss_first": 1, "loss_min": record.get("loss_min_step"), "loss_final": record.get("steps")}
        entries: list[Entry] = [
            (step, {"train_loss_raw": loss})
            for key, at in points.items()
            if (loss := number(record.get(key))) is not None and (step := step_number(number(at))) is not None
        ]
        if not entries:
            continue
        table = merge(sorted(entries, key=lambda entry: entry[0])).table
        said = (f"read as {source}: a ledger, which tells the first, the lowest and the last loss of a stage", *notes)
        name = str(record.get("phase_label") or record.get("run_id"))
        runs.append(Imported(table, manifest_of(source, [record], {}, {}), said, source, name))
    return [replace(runs[0], name="")] if len(runs) == 1 else runs


def manifest_of(source: str, ledger: Sequence[Object], summary: Object, tensors: Mapping[str, TensorFacts]) -> Manifest:
    """Return what the last record of a ledger and a training summary know of the run."""
    manifest = Manifest(schema_version="ck.run.v1", source=source)
    record: Object = ledger[-1] if ledger else {}
    facts = {**record, **summary}
    if name := facts.get("run_id"):
        manifest.name = str(name)
    if length := step_number(number(facts.get("seq_len"))):
        manifest.sequence_length = length
    if (seed := step_number(number(facts.get("seed")))) is not None:
        manifest.seed = seed
    if tensors:
        manifest.tensors = dict(tensors)
    if config := {key: facts[key] for key in _CONFIG if isinstance(facts.get(key), str | int | float)}:
        manifest.config = config
    start, end = _unix(record.get("started_at")), _unix(record.get("ended_at"))
    if start is not None or end is not None:
        manifest.sessions = [Session(start=msgspec.UNSET if start is None else start, end=msgspec.UNSET if end is None else end)]
    return manifest


def _unix(value: Any) -> float | None:
    try:
        moment = datetime.fromisoformat(value).timestamp() if isinstance(value, str) else None
    except (ValueError, OverflowError):
        return None
    return moment if moment is not None and moment >= 0 else None
