"""llm.c: `main.log`, and the lines that its programs print.

In main.log `s:N trl:... lr:... norm:...` belongs to the update after N finished ones, so it is step N + 1. `s:N tel:` is the
validation loss and `s:N eval:` the share of correct HellaSwag answers, both after N updates. A new run truncates the file; a
resumed run appends to it, and its steps go back to its checkpoint. The printed `step N/M | loss ...` counts from 1, and
`val loss` belongs to the steps printed before it. The gradient norm is taken before clipping. Earlier programs print neither
learning rate nor norm.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.tables.numbers import Numbers, count_of, number, unrecorded_column
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import Dialect, RunFact, StepLines
from ckaudit.importers.text.log import Format, NamedLines, holds_line, read_log

NAME = "llm.c main.log"
GENERIC = False

_LOGGED = re.compile(r"s:(\d+) (?=(?:tel|trl|eval):)")
_PAIR = re.compile(r"(?<!\w)(\w++):([-+.\deEnaifNAIF]++)")
_PRINTED = re.compile(
    r"step\s+(?P<step>\d+)/(?P<total>\d+) \| (?:train )?loss (?P<trl>[-+.\denaif]+) (?:\((?P<zloss>[-+.\dnaif]+)z\))?\s?\| norm "
    r"(?P<norm>[-+.\denaif]+) (?:\((?P<znorm>[-+.\dnaif]+)z\))?\s?\| lr (?P<lr>[-+.\denaif]+) \| \(?(?P<ms>[.\d]+) ms \| "
    r"(?:(?P<mfu>[-.\dna]+)% bf16 MFU \| )?(?P<speed>\d+) tok/s\)?"
)
_NAMES = {
    "trl": "train_loss_raw",
    "tel": "val_loss",
    "norm": "grad_global_norm",
    "lr": "learning_rate",
    "speed": "tokens_per_sec",
}
_SCALED = {"eval": ("microbench_score/hellaswag", 1.0), "ms": ("step_time", 1e-3), "mfu": ("mfu", 0.01)}
_HELPERS = frozenset({"zloss", "znorm"})


def detects(source: Source) -> bool:
    """Tell whether a line has either form."""
    return holds_line(source, (b" trl:", b" tel:", b" tok/s"), _cells)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read the log of llm.c.

    Raises:
        UnreadableError: Where no step has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    chosen = {*_NAMES, *_SCALED, "step", "total", *columns.values()}
    needles = ("val loss ", "| num_parameters", "| max_sequence_length")
    dialect = Dialect(NAME, ("s:", "step "), _cells, chosen.__contains__, _HELPERS.__contains__, needles, _facts)
    return read_log(source, columns, Format(dialect, _meaning, _manifest))


def _cells(line: str, start: int) -> list[Cell] | None:
    if match := _LOGGED.match(line, start):
        return [Cell("step", *match.span(1)), *(Cell(pair[1], *pair.span(2)) for pair in _PAIR.finditer(line, match.end()))]
    if match := _PRINTED.match(line, start):
        return sorted(
            (Cell(key, *match.span(key)) for key, text in match.groupdict().items() if text), key=lambda cell: cell.start
        )
    return None


def _facts(text: str) -> Iterator[tuple[str, str]]:
    if match := re.match(r"val loss ([-+.\denaif]+)\s*\Z", text):
        yield "val", match[1]
    if match := re.match(r"(?:\| )?(num_parameters|max_sequence_length)[^|]*\| (\d+)", text):
        yield match[1], match[2]


def _meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
    """Give the columns catalogue names and units, and convert steps to finished updates."""
    raw = rows.columns
    columns = {name: raw[key] for key, name in _NAMES.items() if key in raw and name not in mapped.values()}
    columns |= {name: raw[key].times(factor) for key, (name, factor) in _SCALED.items() if key in raw}
    if "mfu" in columns:  # llm.c prints -100 % for a device with an unknown peak
        columns["mfu"] = columns["mfu"].only(~(columns["mfu"].values < 0))
    columns |= {name: raw[key] for key, name in mapped.items()}
    if "total" in raw:
        columns[".planned"] = raw["total"]
    notes = []
    steps = rows.steps
    if "trl" in raw and (counted := raw["trl"].recorded & ~_printed(raw)).any():
        steps = np.where(counted, rows.steps + 1, rows.steps)
        notes.append("s:N of a training line is the update after N finished ones, so it was taken as step N + 1")
    return NamedLines(StepLines(steps, rows.origin, columns), notes)


def _printed(raw: Mapping[str, Numbers]) -> np.ndarray:
    """Return a mask of the printed lines; only they, not those of main.log, give the number of planned steps."""
    return raw["total"].recorded if "total" in raw else np.zeros(len(raw["trl"].recorded), bool)


def _manifest(manifest: Manifest, facts: Sequence[RunFact], run: TextRun) -> list[str]:
    """Set sizes and planned steps in the manifest, and assign printed evaluations to the steps before them."""
    counts = {fact.key: count_of(fact.value) for fact in facts if fact.key in ("num_parameters", "max_sequence_length")}
    if (parameters := counts.get("num_parameters")) is not None:
        manifest.parameters = parameters
    if (length := counts.get("max_sequence_length")) is not None:
        manifest.sequence_length = length
    if (planned := run.parts[-1].rows.columns.get(".planned")) is not None and planned.recorded.any():
        manifest.planned_steps = int(planned.values[planned.recorded][-1])
    values = [fact for fact in facts if fact.key == "val"]
    early = 0
    for part in run.parts:
        first, last = int(part.rows.origin.lines.min()), int(part.rows.origin.lines.max())
        own = [fact for fact in values if first < fact.line and (fact.line <= last or part is run.parts[-1])]
        early += sum(fact.line <= first for fact in values) if part is run.parts[0] else 0
        _take_evaluations(part.rows, own)
    return [f"{early:,} evaluations before the first step were left out"] if early else []


def _take_evaluations(rows: StepLines, facts: Sequence[RunFact]) -> None:
    if not facts:
        return
    blank = unrecorded_column(len(rows.steps))
    column = rows.columns.setdefault("val_loss", blank)
    for fact in facts:
        at = int(np.searchsorted(rows.origin.lines, fact.line)) - 1
        if (value := number(fact.value)) is not None:  # a truncated line may hold no number
            column.values[at], column.recorded[at] = value, True
