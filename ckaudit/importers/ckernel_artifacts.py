"""Reader of the JSON artifacts of C-Kernel-Engine: curves, norms, parity and the ledger, without placeholder values.

The engine's own runtime writes 0.0 for a gradient norm and for times that it does not measure. It copies its own loss to
`loss_pt` where no reference ran, and writes a parameter difference of 0.0 where none was computed. A summary without a curve
gives one step made of `or 0.0`. All of these are read as not recorded. A norm of 0 beside measured times is a measurement.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from math import isnan
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.io.codec import decode
from ckaudit.contract.schema.manifest import Manifest, Session, TensorFacts
from ckaudit.contract.schema.numbers import encode_float, total
from ckaudit.importers.importer import Imported
from ckaudit.importers.tables.merge import Entry, merge
from ckaudit.importers.tables.numbers import number, step_number

Object = Mapping[str, Any]
SUMMARY = "train_e2e_summary"
_TIMES = ("forward_ms", "backward_ms", "optimizer_ms")
LEDGER = "run_ledger.jsonl"
_CONFIG = ("dataset_name", "stage_id", "pack_mode", "total_tokens", "optimizer", "epochs", "grad_accum", "backend", "lr")
_DECODER = msgspec.json.Decoder()


class Placeholders(Struct):
    """Counts of placeholder values, by kind.

    Attributes:
        norms: Gradient norms of 0.
        losses: Copies of the loss in place of the reference's loss.
        checks: Comparisons with a reference that did not run.
        summary: Zeros of a summary.
    """

    norms: int = 0
    losses: int = 0
    checks: int = 0
    summary: int = 0

    def notes(self) -> list[str]:
        """Return notes on the values that were read as not recorded."""
        counts = {
            "gradient norms of exactly 0 beside no measured time": self.norms,
            "reference losses that only copy the loss": self.losses,
            "comparisons with a reference that was not asked at that step": self.checks,
            "zeros of a summary without a curve": self.summary,
        }
        return [f"{count:,} {what} were read as not recorded" for what, count in counts.items() if count]


def objects(value: Any) -> list[Object]:
    """Return the objects in a list; empty where the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def positive(value: Any) -> float | None:
    """Return a number above 0 or a NaN, else None: the engine writes 0 where it does not know a value."""
    known = number(value)
    return known if known is not None and not known <= 0 else None


def updates_per_row(rows: Sequence[Object], profile: Object, summary: Object) -> int:
    """Return how many rows of a curve one optimizer update spans: the runtime writes one row per micro-step.

    Args:
        rows: Steps of the curve.
        profile: The step profile; gives the tokens of an update.
        summary: The training summary; gives the number of accumulation steps directly.
    """
    if not rows or any(step_number(number(row.get("micro_steps"))) != 1 for row in rows):
        return 1
    accumulation = step_number(number(summary.get("grad_accum")))
    if accumulation:
        return accumulation
    whole, part = positive(profile.get("tokens_per_update")), positive(rows[0].get("tokens"))
    if whole is None or part is None or profile.get("micro_steps") != profile.get("steps") or whole % part:
        return 1
    return int(whole // part)


class LossCurve(Struct, frozen=True):
    """Updates of a curve as columns.

    Attributes:
        steps: The step of each update.
        values: Columns by catalogue name; None: not recorded.
    """

    steps: list[int]
    values: dict[str, list[float | None]]


def loss_curve_of(rows: Sequence[Object], source: str, span: int, empty: Placeholders) -> LossCurve:
    """Return the updates of a curve.

    Args:
        rows: Steps as the artifact has them.
        source: The producer that the artifact names.
        span: Rows per update.
        empty: Counts placeholder values.
    """
    with_step = [row for row, step in zip(rows, members(rows, "step"), strict=True) if step_number(step) is not None]
    steps = [-(-int(step) // span) for step in members(with_step, "step") if step is not None]
    values = _columns(with_step, empty)
    if source == SUMMARY:
        for name, column in values.items():
            empty.summary += column.count(0.0)
            values[name] = [None if value == 0 else value for value in column]
    return _joined(steps, values) if span > 1 else LossCurve(steps, values)


def members(rows: Sequence[Object], key: str) -> list[float | None]:
    """Return one member of each row as a number, or None where it is not a number."""
    cells = [row.get(key) for row in rows]
    return cells if set(map(type, cells)) == {float} else list(map(number, cells))


def _columns(rows: Sequence[Object], empty: Placeholders) -> dict[str, list[float | None]]:
    losses = members(rows, "loss_ck")
    if None in losses:
        losses = [other if loss is None else loss for loss, other in zip(losses, members(rows, "loss"), strict=True)]
    norms = members(rows, "grad_norm")
    if 0.0 in norms:
        unknown = [
            norm == 0 and not any(positive(row.get(name)) for name in _TIMES) for row, norm in zip(rows, norms, strict=True)
        ]
        empty.norms += sum(unknown)
        norms = [None if none else norm for none, norm in zip(unknown, norms, strict=True)]
    times = [None if time is None or time <= 0 else time / 1000 for time in members(rows, "step_ms")]
    tokens = [None if count is None or count <= 0 else count for count in members(rows, "tokens")]
    return {
        "grad_global_norm": norms,
        "train_loss_raw": losses,
        "learning_rate": members(rows, "lr"),
        "tokens_per_update": tokens,
        "step_time": times,
    }


def _joined(steps: Sequence[int], values: Mapping[str, Sequence[float | None]]) -> LossCurve:
    """Merge the micro-steps of each update; an update number that returns later stays separate: the run went back."""
    starts = [place for place, step in enumerate(steps) if not place or step != steps[place - 1]]
    ends = [*starts[1:], len(steps)][: len(starts)]  # without steps there are no ends
    columns = {
        name: [_over(name, column[start:end]) for start, end in zip(starts, ends, strict=True)] for name, column in values.items()
    }
    return LossCurve([steps[start] for start in starts], columns)


def _over(name: str, values: Sequence[float | None]) -> float | None:
    """Return the value of an update from those of its micro-steps: their mean, their sum or the last one."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if name == "train_loss_raw":
        return total(known) / len(known)
    return sum(known) if name in ("step_time", "tokens_per_update") else known[-1]


def parity_sections(rows: Sequence[Object], curve: Sequence[Object], source: str, empty: Placeholders) -> dict[int, Object]:
    """Return the comparison with PyTorch by step, as sections of a checkpoint.

    Args:
        rows: Steps of the parity artifact.
        curve: Steps of the curve, whose two losses are compared where there is no parity artifact.
        source: The producer that the parity artifact names.
        empty: Counts placeholder values.
    """
    sections: dict[int, Object] = {}
    places = members(curve, "step")
    for place, own, other in zip(places, members(curve, "loss_ck"), members(curve, "loss_pt"), strict=True):
        if own is None or other is None or (step := step_number(place)) is None:
            continue
        if own == other or (isnan(own) and isnan(other)):
            empty.losses += 1
        elif not rows:
            sections[step] = {"loss_diff": encode_float(abs(own - other)), "reference": "PyTorch"}
    for row in rows:
        step, section = step_number(number(row.get("step"))), _compared(row, source, empty)
        if step is not None and section:
            sections[step] = {**section, "reference": "PyTorch"}
    return sections


def _compared(row: Object, source: str, empty: Placeholders) -> dict[str, Any]:
    loss, largest = number(row.get("loss_diff")), number(row.get("max_param_diff"))
    if row.get("checked") is False or row.get("oracle_available") is False:
        empty.checks += loss is not None
        loss = None
    if "replay_weight_max_abs_diff" in row and row["replay_weight_max_abs_diff"] is None:
        largest = None
    if source == SUMMARY:
        empty.summary += (loss == 0) + (largest == 0)
        loss, largest = loss or None, largest or None
    differences: dict[str, Any] = {"loss_diff": loss, "param_diff": largest}
    section: dict[str, Any] = {name: encode_float(abs(value)) for name, value in differences.items() if value is not None}
    worst = row.get("worst_param")
    if "param_diff" in section and isinstance(worst, str) and worst != "aggregate":
        return {**section, "worst_tensor": worst}
    return section


def norm_rows(norms: Object, empty: Placeholders) -> Iterator[tuple[int, float | None, dict[str, float]]]:
    """Yield step, global norm and the norm of each tensor; steps where all norms are 0 are skipped as not measured."""
    steps, whole = norms.get("steps"), norms.get("global")
    tensors = (
        {str(name): norm_cells for name, norm_cells in params.items()} if isinstance(params := norms.get("params"), dict) else {}
    )
    for place, value in enumerate(steps if isinstance(steps, list) else []):
        step = step_number(number(value))
        own = {name: known for name, norm_cells in tensors.items() if (known := number(_at(norm_cells, place))) is not None}
        total = number(_at(whole, place))
        if step is None:
            continue
        if not total and not any(own.values()):
            empty.norms += total is not None
            continue
        yield step, total, own


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None


# The ledger has a line for each start and end of a training stage; the last line of a run counts.
def read_ledger(data: bytes) -> tuple[list[Object], int]:
    """Return the last record of each run, and the number of lines that are not JSON, such as a truncated one."""
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
    """Return the stages of a ledger without a curve, each with its first, lowest and last loss."""
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
        stage_notes = (f"read as {source}: a ledger, which tells the first, the lowest and the last loss of a stage", *notes)
        name = str(record.get("phase_label") or record.get("run_id"))
        runs.append(Imported(table, manifest_of(source, [record], {}, {}), stage_notes, source, name))
    return [replace(runs[0], name="")] if len(runs) == 1 else runs


def manifest_of(source: str, ledger: Sequence[Object], summary: Object, tensors: Mapping[str, TensorFacts]) -> Manifest:
    """Return the manifest of a run from the last record of its ledger and its training summary."""
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
