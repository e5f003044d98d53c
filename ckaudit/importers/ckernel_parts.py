"""What the JSON artifacts of C-Kernel-Engine say of steps, without the values that only stand for nothing.

The engine's own runtime writes 0.0 for a gradient norm and for times that it does not measure, copies its own loss to
`loss_pt` where no reference ran, and calls a parameter difference 0.0 where none was computed; a summary that lacks a curve
writes one step made of `or 0.0`. None of these was recorded. A norm of 0 beside measured times is one.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, fsum, isnan
from typing import Any

from msgspec import Struct

from ckaudit.contract.numbers import to_word
from ckaudit.importers.cells import number, step_number
from ckaudit.importers.merge import Entry

Object = Mapping[str, Any]
SUMMARY = "train_e2e_summary"
_TIMES = ("forward_ms", "backward_ms", "optimizer_ms")


class Placeholders(Struct):
    """How many values of each kind stood for nothing.

    Attributes:
        norms: Gradient norms of 0.
        losses: Copies of the loss in place of the reference's.
        checks: Comparisons with a reference that was not asked.
        summary: Zeros of a summary.
    """

    norms: int = 0
    losses: int = 0
    checks: int = 0
    summary: int = 0

    def notes(self) -> list[str]:
        """Say what was read as not recorded."""
        said = {
            "gradient norms of exactly 0 beside no measured time": self.norms,
            "reference losses that only copy the loss": self.losses,
            "comparisons with a reference that was not asked at that step": self.checks,
            "zeros of a summary without a curve": self.summary,
        }
        return [f"{count:,} {what} were read as not recorded" for what, count in said.items() if count]


def objects(value: Any) -> list[Object]:
    """Return the objects of a list; nothing of anything else."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def positive(value: Any) -> float | None:
    """Return a number above 0 or a NaN, None for everything else: the engine writes 0 where it does not know."""
    known = number(value)
    return known if known is not None and not known <= 0 else None


def updates_per_row(rows: Sequence[Object], profile: Object, summary: Object) -> int:
    """Return how many rows of a curve one optimizer update spans: the runtime writes one for each micro-step.

    Args:
        rows: Steps of the curve.
        profile: The step profile; tells the tokens of an update.
        summary: The training summary; tells the accumulation outright.
    """
    if not rows or any(step_number(number(row.get("micro_steps"))) != 1 for row in rows):
        return 1
    told = step_number(number(summary.get("grad_accum")))
    if told:
        return told
    whole, part = positive(profile.get("tokens_per_update")), positive(rows[0].get("tokens"))
    if whole is None or part is None or profile.get("micro_steps") != profile.get("steps") or whole % part:
        return 1
    return int(whole // part)


def curve_entries(rows: Sequence[Object], source: str, span: int, empty: Placeholders) -> Iterator[Entry]:
    """Yield step and values of each update of a curve.

    Args:
        rows: Steps as the artifact has them.
        source: What the artifact says made it.
        span: Rows to one update.
        empty: Counts what stood for nothing.
    """
    together: dict[int, list[Object]] = {}
    for row in rows:
        step = step_number(number(row.get("step")))
        if step is None:
            continue
        update = ceil(step / span)
        if span == 1 or update not in together:
            yield from _joined(together, source, empty)
            together = {}
        together.setdefault(update, []).append(row)
    yield from _joined(together, source, empty)


def _joined(together: Mapping[int, Sequence[Object]], source: str, empty: Placeholders) -> Iterator[Entry]:
    for update, rows in together.items():
        parts = [_values(row, source, empty) for row in rows]
        names = dict.fromkeys(name for part in parts for name in part)
        values = {name: _over(name, [part[name] for part in parts if name in part]) for name in names}
        if values:
            yield update, values


def _over(name: str, values: Sequence[float]) -> float:
    """Return what the micro-steps of an update make together."""
    if name == "train_loss_raw":
        return fsum(values) / len(values) if len(values) > 1 else values[0]
    return sum(values) if name in ("step_time", "tokens_per_update") else values[-1]


def _values(row: Object, source: str, empty: Placeholders) -> dict[str, float]:
    found = {"train_loss_raw": number(row.get("loss_ck", row.get("loss"))), "learning_rate": number(row.get("lr"))}
    norm = number(row.get("grad_norm"))
    if norm == 0 and not any(positive(row.get(name)) for name in _TIMES):
        empty.norms += 1
        norm = None
    found |= {"grad_global_norm": norm, "tokens_per_update": positive(row.get("tokens"))}
    time = positive(row.get("step_ms"))
    found["step_time"] = None if time is None else time / 1000
    if source == SUMMARY:
        empty.summary += sum(value == 0 for value in found.values())
        found = {name: None if value == 0 else value for name, value in found.items()}
    return {name: value for name, value in found.items() if value is not None}


def parity_sections(rows: Sequence[Object], curve: Sequence[Object], source: str, empty: Placeholders) -> dict[int, Object]:
    """Return the comparison with PyTorch by step, as sections of a checkpoint.

    Args:
        rows: Steps of the parity artifact.
        curve: Steps of the curve, whose two losses stand in where there is no such artifact.
        source: What the parity artifact says made it.
        empty: Counts what stood for nothing.
    """
    found: dict[int, Object] = {}
    for row in curve:
        own, other = number(row.get("loss_ck")), number(row.get("loss_pt"))
        if (step := step_number(number(row.get("step")))) is None or own is None or other is None:
            continue
        if own == other or (isnan(own) and isnan(other)):
            empty.losses += 1
        elif not rows:
            found[step] = {"loss_diff": to_word(abs(own - other)), "reference": "PyTorch"}
    for row in rows:
        step, section = step_number(number(row.get("step"))), _compared(row, source, empty)
        if step is not None and section:
            found[step] = {**section, "reference": "PyTorch"}
    return found


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
    found: dict[str, Any] = {"loss_diff": loss, "param_diff": largest}
    section: dict[str, Any] = {name: to_word(abs(value)) for name, value in found.items() if value is not None}
    worst = row.get("worst_param")
    if "param_diff" in section and isinstance(worst, str) and worst != "aggregate":
        return {**section, "worst_tensor": worst}
    return section


def norm_rows(norms: Object, empty: Placeholders) -> Iterator[tuple[int, float | None, dict[str, float]]]:
    """Yield step, global norm and the norm of each tensor; a step where all are 0 was not measured."""
    steps, whole = norms.get("steps"), norms.get("global")
    tensors = {str(name): each for name, each in params.items()} if isinstance(params := norms.get("params"), dict) else {}
    for place, value in enumerate(steps if isinstance(steps, list) else []):
        step = step_number(number(value))
        own = {name: known for name, each in tensors.items() if (known := number(_at(each, place))) is not None}
        total = number(_at(whole, place))
        if step is None:
            continue
        if not total and not any(own.values()):
            empty.norms += total is not None
            continue
        yield step, total, own


def _at(values: Any, place: int) -> Any:
    return values[place] if isinstance(values, list) and place < len(values) else None
