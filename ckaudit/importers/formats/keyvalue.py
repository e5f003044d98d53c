"""Lines of keys and values: nanoGPT, modded-nanogpt, parameter-golf, and programs that print like them.

A line names its step, `step:100/5100 val_loss:3.27 train_time:123ms` or `step 100: train loss 2.0, val loss 2.1`, and then
values by name; text without a step, such as the source of the program before its log, is passed over. nanoGPT's `iter N`
counts from 0, so it is step N + 1; its `step N` is after N updates, and the train loss beside a val loss there is an estimate
over many batches with dropout off. Its mfu of -100 % means that none is known yet. In modded-nanogpt `train_time` is the time
so far without evaluations, `step_avg` its mean, "nan" in the first ten steps. A step that goes back to the beginning is
another run, one that goes back to anywhere else a resume.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.imported import Imported
from ckaudit.importers.source import Source
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.error_lines import shortened
from ckaudit.importers.text.keyvalue_columns import is_derived, is_wanted, meaning, name_of
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import Dialect, Fact
from ckaudit.importers.text.log import Format, holds_line, read_log

NAME = "key:value text log"
GENERIC = True

_STEP = re.compile(
    r"(?<![\w./-])(?:(?:(?:train_|global_|optimizer_)?(?:step|update)s?|iterations?)|(iter))\s*[:=#]?\s*(\d+)(?:\s*/\s*(\d+))?(?![\w.])",
    re.IGNORECASE,
)
_PAIR = re.compile(
    r"(?<![\w./-])([A-Za-z_][\w/.@]*(?: [A-Za-z_][\w/.@]*){0,2})(?:\s*[:=]\s*|\s+)"
    r"([-+]?(?:nan|inf|(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+))(?=([A-Za-z%]{0,9})(?:[\s,;|)\]/]|$))",
    re.IGNORECASE,
)
_AHEAD = 100  # characters before which the step must stand
_FACTS = (
    ("parameters", re.compile(r"(?:model_params|num_params|n_params):\s?(\d+)\s*\Z")),
    ("seed", re.compile(r"seed:\s?(\d+)\s*\Z")),
    ("world_size", re.compile(r"world_size:(\d+)\b")),
    ("tokens_per_update", re.compile(r"train_batch_tokens:(\d+)\b")),
    ("tokens_per_update", re.compile(r"tokens per iteration will be: ([\d,]+)\s*\Z")),
    ("sequence_length", re.compile(r"\btrain_seq_len:(\d+)\b")),
    ("vocabulary", re.compile(r"\bvocab_size[=:](\d+)\b")),
    ("size", re.compile(r"(number of parameters: [\d.]+M)\s*\Z")),
    ("stopped", re.compile(r"(stopping_early: .{1,100})")),
    ("resumed", re.compile(r"resum(?:ed|ing)\b.{0,60}?\bstep[ :=_]?(\d+)", re.IGNORECASE)),
    ("final", re.compile(r"(final\w*) val_loss:")),
)
_NEEDLES = (
    "_params",
    "seed:",
    "world_size:",
    "train_batch_tokens",
    "tokens per iteration",
    "vocab_size",
    "number of parameters",
    "stopping_early",
    "esum",
    "final",
)
_COUNTS = ("parameters", "seed", "world_size", "sequence_length", "vocabulary")


def detects(source: Source) -> bool:
    """Tell by a line that names a step and a value that is known."""
    return holds_line(source, (b"step", b"iter", b"Step", b"Iter", b"update"), _known_cells)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read lines of keys and values.

    Raises:
        UnreadableError: Where no step has a value.
        UsageError: Where `columns` names what no line holds.
    """
    cells = _cells if columns else _known_cells
    chosen = set(columns.values())
    hints = ("step", "iter", "Step", "Iter", "update", "STEP", "ITER")
    dialect = Dialect(NAME, hints, cells, lambda key: key in chosen or is_wanted(key), is_derived, _NEEDLES, _facts)
    return read_log(source, columns, Format(dialect, meaning, _manifest))


def _known_cells(line: str, start: int) -> list[Cell] | None:
    """Return the values of a line with a step and at least one value whose name is known."""
    cells = _cells(line, start)
    return cells if cells and any(name_of(cell.key) for cell in cells) else None


def _cells(line: str, start: int) -> list[Cell] | None:
    if start < len(line) and line[start] in "#{<\"'`*>|":
        return None
    found = _STEP.search(line, start, start + _AHEAD)
    if found is None:
        return None
    cells = [Cell("iter" if found[1] else "step", *found.span(2))]
    cells += [Cell("total", *found.span(3))] if found[3] else []
    seen = {cell.key for cell in cells}
    for pair in _PAIR.finditer(line, found.end()):
        key = f"{pair[1].lower()} [{pair[3]}]" if pair[3] else pair[1].lower()
        if key not in seen:
            seen.add(key)
            cells.append(Cell(key, *pair.span(2)))
    return cells if len(cells) > 1 else None


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for key, pattern in _FACTS:
        if match := pattern.search(text):
            yield key, match[1]


def _manifest(manifest: Manifest, facts: Sequence[Fact], run: TextRun) -> list[str]:
    """Fill in size and plan, and say how the run ended."""
    told = {fact.key: fact.value.replace(",", "") for fact in facts}
    for key in _COUNTS:
        if told.get(key, "").isdecimal():
            setattr(manifest, key, int(told[key]))
    if "size" in told:
        manifest.model_scale_hint = told["size"]
    planned = run.parts[-1].rows.columns.get(".planned")
    if planned is not None and planned.recorded.any():
        manifest.planned_steps = int(planned.values[planned.recorded][-1])
    notes = []
    if "stopped" in told:
        notes.append(f"the program stopped itself before the last planned step: {shortened(told['stopped'])}")
    if "final" in told:
        notes.append(f"losses without a step were left out, such as {told['final']}, taken after training")
    return notes
