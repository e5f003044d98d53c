"""Megatron-LM, Megatron-DeepSpeed, GPT-NeoX and DeepSpeed: the text they print.

A line `iteration N/ M | key: value | ...` tells of update attempt N, skipped ones counted; losses are means over the attempts
since the line before that were not skipped. Only a mean above zero is printed: no loss in a line means that all attempts
were skipped, or that the mean was NaN. The gradient norm is taken before clipping; after a skipped attempt Megatron-DeepSpeed
prints the old one again, and 0.000 all along means that none was computed. Durations are in ms or s. `validation loss at
iteration N` is the mean over the evaluation. DeepSpeed's own `step=N, skipped=K, lr=[...]` counts skipped updates since the
start. The last rank prints, under whatever prefix its launcher adds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.imported import Imported
from ckaudit.importers.source import Source
from ckaudit.importers.tables.numbers import Numbers, nothing
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.error_lines import shortened
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import Dialect, Fact
from ckaudit.importers.text.log import Format, holds_line, read_log
from ckaudit.importers.text.megatron_columns import is_derived, is_wanted, meaning

NAME = "Megatron or DeepSpeed text log"
GENERIC = False

_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\s*\|")
_PAIR = re.compile(r"\s*([^|:]*[^|:\s])\s*:\s*([-+.\deEnaifNAIF]+)[^|]*(?:\||$)")
_VALIDATION = re.compile(r"\s*validation (?:loss|results) at iteration\s+(\d+)(?: on validation set)?\s*\|")
_DEEPSPEED = re.compile(r"\bstep=(\d+), skipped=(\d+), lr=\[([-+.\deE]+)")
_PIPELINE = re.compile(r"\bsteps: (\d+) loss: ([-+.\deEnaif]+) iter time \(s\): ([.\d]+)")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")

_FINAL = re.compile(r"\s*validation (?:loss|results) at the end of training[^|]*\bval[^|]*\|\s*lm.loss value: ([-+.\deEnaif]+)")
_ARGUMENT = re.compile(r"\s{2,}(\w+) \.{2,} (.+?)\s*\Z")
_FACTS = (
    ("resumed", re.compile(r"successfully loaded checkpoint from .{1,500} at iteration (\d+)")),
    ("start", re.compile(r"\[before the start of training step\] datetime: ([-\d]+ [:\d]+)")),
    ("vocabulary", re.compile(r"> padded vocab \(size: (\d+)\)")),
    ("world_size", re.compile(r"using world size: (\d+)")),
    ("final", _FINAL),
    ("test", re.compile(r"validation (?:loss|results) at .{0,40}\b(test)\b")),
)
_MODEL = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels", "num_experts")
MAX_ARGUMENTS = 400


def detects(source: Source) -> bool:
    """Tell by a line of an iteration, wherever it stands: hundreds of arguments may be printed before."""
    marks = (
        b"elapsed time per iteration (",
        b"lm loss",
        b"lm_loss",
        b", skipped=",
        b"number of skipped iterations:",
        b"iter time (s): ",
    )
    return holds_line(source, marks, _cells)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read what Megatron or DeepSpeed printed.

    Raises:
        UnreadableError: Where no iteration has a value.
        UsageError: Where `columns` names what no line holds.
    """
    needles = ("checkpoint", "datetime", "padded vocab", "world size", "end of training", "test set", " ... ", "....")
    chosen = set(columns.values())
    hints = ("iteration", "step=", "steps: ")
    dialect = Dialect(NAME, hints, _cells, lambda key: key in chosen or is_wanted(key), is_derived, needles, _facts)
    return read_log(source, columns, Format(dialect, meaning, _manifest))


def _cells(line: str, start: int) -> list[Cell] | None:
    """Return the values of a line of an iteration, an evaluation, or DeepSpeed's own."""
    if match := _ITERATION.search(line, start):
        before = [*_pairs(line, start, match.start())]
        cells = [Cell("step", *match.span(1)), Cell("total", *match.span(2)), *_pairs(line, match.end(), len(line))]
        return [*before, *cells] if len(cells) > 2 else None
    if match := _VALIDATION.match(line, start):
        values = [Cell(f"validation {key.removesuffix(' value')}", *rest) for key, *rest in _pairs(line, match.end(), len(line))]
        return [Cell("step", *match.span(1)), *values] if values else None
    if match := _DEEPSPEED.search(line, start):
        others = (Cell(f"lr {number}", *each.span()) for number, each in enumerate(_NUMBER.finditer(line, match.end()), 1))
        return [Cell("step", *match.span(1)), Cell("skipped", *match.span(2)), Cell("lr", *match.span(3)), *others]
    if match := _PIPELINE.search(line, start):
        rest = (Cell(f"samples {number}", *each.span()) for number, each in enumerate(_NUMBER.finditer(line, match.end()), 1))
        return [Cell("step", *match.span(1)), Cell("loss", *match.span(2)), Cell("iter time (s)", *match.span(3)), *rest]
    return None


def _pairs(line: str, start: int, end: int) -> Iterator[Cell]:
    seen = set()
    for pair in _PAIR.finditer(line, start, end):
        key = pair[1].lower().replace("_", " ")
        if key not in seen:
            seen.add(key)
            yield Cell(key, *pair.span(2))


def _facts(text: str) -> Iterator[tuple[str, str]]:
    """Yield what a line tells of the run as a whole; Megatron prints its arguments dotted out."""
    for key, pattern in _FACTS:
        if match := pattern.search(text):
            yield key, match[1]
            if key == "resumed":
                yield "start", ""
    if match := _ARGUMENT.match(f"  {text}"):
        yield f"argument {match[1]}", shortened(match[2])


def _manifest(manifest: Manifest, facts: Sequence[Fact], run: TextRun) -> list[str]:
    """Fill in plan, size and arguments."""
    notes = []
    rows = run.parts[-1].rows
    arguments = {fact.key.removeprefix("argument "): fact.value for fact in facts if fact.key.startswith("argument ")}
    counts = {key: int(value) for key, value in arguments.items() if value.isdecimal() and len(value) < 16}
    planned, length = (_last(rows.columns.get(name)) for name in (".planned", ".sequence_length"))
    if planned:
        manifest.planned_steps = planned
    if length or counts.get("seq_length"):
        manifest.sequence_length = length or counts["seq_length"]
    worlds = [int(fact.value) for fact in facts if fact.key == "world_size"]
    if worlds or "world_size" in counts:
        manifest.world_size = worlds[-1] if worlds else counts["world_size"]
    sizes = [int(fact.value) for fact in facts if fact.key == "vocabulary"]
    if sizes:
        manifest.vocabulary = sizes[-1]
    if "seed" in counts:
        manifest.seed = counts["seed"]
    if counts.get("lr_warmup_iters"):
        manifest.warmup_steps = counts["lr_warmup_iters"]
    if (clip := _positive(arguments.get("clip_grad", ""))) is not None:
        manifest.clip_norm = clip
    if model := {name: counts[name] for name in _MODEL if name in counts}:
        manifest.model = model
    if arguments:
        manifest.config = dict(list(arguments.items())[:MAX_ARGUMENTS])
    notes += _take_final(facts, run)
    if any(fact.key == "test" for fact in facts):
        notes.append("losses over the test set were left out")
    return notes


def _last(column: Numbers | None) -> int:
    """Return the last value of a column, 0 where there is none."""
    return int(column.values[column.recorded][-1]) if column is not None and column.recorded.any() else 0


def _positive(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value < np.inf else None


def _take_final(facts: Sequence[Fact], run: TextRun) -> list[str]:
    """Write the evaluation at the end of training to the last step."""
    final = [fact.value for fact in facts if fact.key == "final"]
    rows = run.parts[-1].rows
    blank = nothing(len(rows.steps))
    column = rows.columns.setdefault("val_loss", blank)
    if not final or column.recorded[-1]:
        return []
    column.values[-1], column.recorded[-1] = float(final[-1]), True
    return [f"the evaluation at the end of training was taken as that of step {int(rows.steps[-1]):,}"]
