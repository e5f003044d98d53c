"""Console text of Megatron-LM, Megatron-DeepSpeed, GPT-NeoX and DeepSpeed.

A line `iteration N/ M | key: value | ...` reports update attempt N, including skipped ones. Losses are means over the attempts
since the previous line that were not skipped. Only a mean above zero is printed: without a loss, all attempts of the line were
skipped, or the mean was NaN. The gradient norm is taken before clipping. After a skipped attempt Megatron-DeepSpeed prints the
previous norm again; 0.000 throughout means that none was computed. Durations are in ms or s. `validation loss at
iteration N` is the mean over the evaluation. DeepSpeed's own `step=N, skipped=K, lr=[...]` counts skipped updates since the
start. The last rank prints, with any prefix that its launcher adds.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.names import catalogue_name
from ckaudit.importers.tables.numbers import Numbers, count_of, counts_of, fill_missing, float_of, number, unrecorded_column
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.error_lines import shortened
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import Dialect, RunFact, StepLines
from ckaudit.importers.text.log import Format, NamedLines, holds_line, read_log

NAME = "Megatron or DeepSpeed text log"
GENERIC = False
_ITERATION = re.compile(r"\biteration\s+(\d+)\s*/\s*(\d+)\s*\|")
_VALUE = re.compile(r"\s*+([-+.\deEnaifNAIF]++)")
_VALIDATION = re.compile(r"\s*validation (?:loss|results) at iteration\s+(\d+)(?: on validation set)?\s*\|")
_DEEPSPEED = re.compile(r"\bstep=(\d+), skipped=(\d+), lr=\[([-+.\deE]+)")
_PIPELINE = re.compile(r"\bsteps: (\d+) loss: ([-+.\deEnaif]+) iter time \(s\): ([.\d]+)(?: samples/sec: ([.\d]+))?")
_TIMER = re.compile(r"\bglobal_step=(\d+), RunningAvgSamplesPerSec=([.\deE+]+), CurrSamplesPerSec=([.\deE+]+)")
_OVERFLOW = re.compile(r"\bOVERFLOW!.{1,60}\bloss scale: [.\deE+]{1,30}, reducing to ([.\deE+]{1,30})")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_FINAL = re.compile(
    r"validation (?:loss|results) at the end of training(?=[^|]{0,200}\bval)[^|]{0,400}\|\s*+lm.loss value: ([-+.\deEnaif]+)"
)
_ARGUMENT = re.compile(r"(\w+) \.{2,} (.+)")
_FACTS = (
    ("resumed", re.compile(r"successfully loaded checkpoint from .{1,500} at iteration (\d+)")),
    ("start", re.compile(r"\[before the start of training step\] datetime: ([-\d]+ [:\d]+)")),
    ("vocabulary", re.compile(r"> padded vocab \(size: (\d+)\)")),
    ("world_size", re.compile(r"using world size: (\d+)")),
    ("final", _FINAL),
    ("scale", _OVERFLOW),
    ("test", re.compile(r"validation (?:loss|results) at .{0,40}\b(test)\b")),
)
_MODEL = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "kv_channels", "num_experts")
MAX_ARGUMENTS = 400
Mask = NDArray[np.bool_]
Columns = dict[str, Numbers]
_PLAIN = {
    "learning rate": "learning_rate",
    "grad norm": "grad_global_norm",
    "loss scale": "loss_scale",
    "consumed tokens": "tokens_seen",
    "number of skipped iterations": "skipped_updates",
    "number of nan iterations": "nan_inf_events",
    "load balancing loss": "moe_load_balance_loss",
    "moe loss": "moe_load_balance_loss",
    "samples/sec": "samples_per_sec",
}
_SECONDS = {"elapsed time per iteration (ms)": 1e-3, "elapsed time per iteration (s)": 1.0, "iter time (s)": 1.0}
_TRAIN_LOSSES = ("lm loss", "loss", "total loss", "reduced train loss")
_VALIDATION_LOSSES = ("validation lm loss", "validation loss", "validation total loss")
_SPEED_NOW = "samples/sec of the timer"
_USED = (_SPEED_NOW, "step", "total", "lr", "skipped", "consumed samples", "global batch size")
_TAKEN = frozenset({*_PLAIN, *_SECONDS, *_TRAIN_LOSSES, *_VALIDATION_LOSSES, *_USED})


def detects(source: Source) -> bool:
    """Tell whether any line reports an iteration; hundreds of arguments may be printed before the first one."""
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
    """Read the output of Megatron or DeepSpeed.

    Raises:
        UnreadableError: Where no iteration has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    needles = ("checkpoint", "datetime", "padded vocab", "world size", "end of training", "test set", " ... ", "....", "OVERFLOW")
    chosen = set(columns.values())
    hints = ("iteration", "step=", "steps: ")
    dialect = Dialect(NAME, hints, _cells, lambda key: key in chosen or is_wanted(key), is_derived, needles, _facts)
    return read_log(source, columns, Format(dialect, meaning, _manifest))


def _cells(line: str, start: int) -> list[Cell] | None:
    """Return the values of a line of an iteration or an evaluation, or of DeepSpeed's own line."""
    if match := _ITERATION.search(line, start):
        before = [*_pairs(line, start, match.start())]
        cells = [Cell("step", *match.span(1)), Cell("total", *match.span(2)), *_pairs(line, match.end(), len(line))]
        return [*before, *cells] if len(cells) > 2 else None
    if match := _VALIDATION.match(line, start):
        values = [Cell(f"validation {key.removesuffix(' value')}", *rest) for key, *rest in _pairs(line, match.end(), len(line))]
        return [Cell("step", *match.span(1)), *values] if values else None
    if match := _DEEPSPEED.search(line, start):
        others = (Cell(f"lr {number}", *value.span()) for number, value in enumerate(_NUMBER.finditer(line, match.end()), 1))
        return [Cell("step", *match.span(1)), Cell("skipped", *match.span(2)), Cell("lr", *match.span(3)), *others]
    if match := _PIPELINE.search(line, start):
        named_groups = zip(("step", "loss", "iter time (s)", "samples/sec"), range(1, 5), strict=True)
        return [*(Cell(name, *match.span(place)) for name, place in named_groups if match[place]), *_others(line, match.end())]
    if match := _TIMER.search(line, start):
        timed = zip(("step", "samples/sec so far", _SPEED_NOW), range(1, 4), strict=True)
        return [*(Cell(name, *match.span(place)) for name, place in timed), *_others(line, match.end())]
    return None


def _others(line: str, start: int) -> Iterator[Cell]:
    return (Cell(f"samples {number}", *value.span()) for number, value in enumerate(_NUMBER.finditer(line, start), 1))


def _pairs(line: str, start: int, end: int) -> Iterator[Cell]:
    """Yield the first key with a number in each field between bars, unless an earlier field has the same key."""
    seen = set()
    while start < end:
        bar = line.find("|", start, end)
        stop = end if bar < 0 else bar
        if (cell := _pair(line, start, stop)) is not None and cell.key not in seen:
            seen.add(cell.key)
            yield cell
        start = stop + 1


def _pair(line: str, start: int, stop: int) -> Cell | None:
    while (colon := line.find(":", start, stop)) >= 0:
        key = line[start:colon].strip()
        if key and (value := _VALUE.match(line, colon + 1, stop)) is not None:
            return Cell(key.lower().replace("_", " "), *value.span(1))
        start = colon + 1
    return None


def _facts(text: str) -> Iterator[tuple[str, str]]:
    """Yield the facts in a line about the whole run; Megatron prints arguments with dots between name and value."""
    for key, pattern in _FACTS:
        if match := pattern.search(text):
            yield key, match[1]
            if key == "resumed":
                yield "start", ""
    if match := _ARGUMENT.fullmatch(text.strip()):
        yield f"argument {match[1]}", shortened(match[2])


def _manifest(manifest: Manifest, facts: Sequence[RunFact], run: TextRun) -> list[str]:
    """Set planned steps, sizes and arguments in the manifest, and return notes."""
    notes = []
    rows = run.parts[-1].rows
    arguments = {fact.key.removeprefix("argument "): fact.value for fact in facts if fact.key.startswith("argument ")}
    counts = {key: count for key, value in arguments.items() if "," not in value and (count := count_of(value)) is not None}
    planned, length = (_last(rows.columns.get(name)) for name in (".planned", ".sequence_length"))
    if planned:
        manifest.planned_steps = planned
    if length or counts.get("seq_length"):
        manifest.sequence_length = length or counts["seq_length"]
    worlds = counts_of(fact.value for fact in facts if fact.key == "world_size")
    if worlds or "world_size" in counts:
        manifest.world_size = worlds[-1] if worlds else counts["world_size"]
    sizes = counts_of(fact.value for fact in facts if fact.key == "vocabulary")
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
    """Return the last value of a column, or 0 where it has none."""
    return int(column.values[column.recorded][-1]) if column is not None and column.recorded.any() else 0


def _positive(text: str) -> float | None:
    try:
        value = float_of(text)
    except ValueError:
        return None
    return value if 0 < value < np.inf else None


def _take_final(facts: Sequence[RunFact], run: TextRun) -> list[str]:
    """Assign the evaluation at the end of training to the last step, and return a note on it."""
    final = [fact.value for fact in facts if fact.key == "final"]
    rows = run.parts[-1].rows
    blank = unrecorded_column(len(rows.steps))
    column = rows.columns.setdefault("val_loss", blank)
    value = number(final[-1]) if final else None  # a truncated line may hold no number
    if value is None or column.recorded[-1]:
        return []
    column.values[-1], column.recorded[-1] = value, True
    return [f"the evaluation at the end of training was taken as that of step {int(rows.steps[-1]):,}"]


# Meaning of the keys: catalogue names, units, and what a missing loss means.
def is_wanted(key: str) -> bool:
    """Tell whether a key is a metric of the catalogue, or helps to compute one."""
    return key in _TAKEN or catalogue_name(key) == "train_loss_raw"


def is_derived(key: str) -> bool:
    """Tell whether a key only repeats others in another form."""
    return key.endswith(" ppl") or key.startswith(("lr ", "samples ", "samples/sec "))


def meaning(rows: StepLines, mapped: Mapping[str, str], facts: Sequence[RunFact]) -> NamedLines:
    """Give the columns their catalogue names."""
    raw = rows.columns
    names = {key: name for key, name in _PLAIN.items() if key in raw and name not in mapped.values()} | dict(mapped)
    columns = {name: raw[key] for key, name in names.items()}
    for key, factor in _SECONDS.items():
        if key in raw:
            columns.setdefault("step_time", raw[key].times(factor))
    if _SPEED_NOW in raw:
        columns.setdefault("samples_per_sec", raw[_SPEED_NOW])
    losses = {"train_loss_raw": _first(raw, _TRAIN_LOSSES), "val_loss": _first(raw, _VALIDATION_LOSSES)}
    columns |= {name: raw[key] for name, key in losses.items() if key and name not in mapped.values()}
    notes = _counted(columns, raw, facts)
    notes += _deepspeed(columns, raw) + _scales(columns, rows, facts)
    if skipped := columns.get("skipped_updates"):
        columns["skipped_updates"] = _per_attempt(skipped, rows.steps)
    notes += _without_loss(columns, raw, losses["train_loss_raw"])
    notes += _not_computed(columns)
    return NamedLines(StepLines(rows.steps, rows.origin, columns), notes)


def _first(raw: Columns, keys: Sequence[str]) -> str:
    """Return the first of the keys that is present, else for training losses a key with a common name of a loss."""
    known = next((key for key in keys if key in raw), "")
    return known or next((key for key in raw if catalogue_name(key) == "train_loss_raw" and keys is _TRAIN_LOSSES), "")


def _counted(columns: Columns, raw: Columns, facts: Sequence[RunFact]) -> list[str]:
    """Compute token counts where samples are counted and the sequence length is known."""
    if "total" in raw:
        columns[".planned"] = raw["total"]
    samples, batch = raw.get("consumed samples"), raw.get("global batch size")
    length = _length(raw, facts)
    if samples is None or not length:
        return []
    columns[".sequence_length"] = Numbers(np.where(samples.recorded, length, np.nan), samples.recorded)
    if "tokens_seen" not in columns:
        columns["tokens_seen"] = samples.times(length)
    if batch is not None:
        columns["tokens_per_update"] = batch.times(length)
        if "step_time" in columns:
            passed = columns["step_time"]
            with np.errstate(divide="ignore", invalid="ignore"):
                speed = batch.values * length / passed.values
            columns["tokens_per_sec"] = Numbers(speed, batch.recorded & passed.recorded & np.isfinite(speed))
    return []


def _length(raw: Columns, facts: Sequence[RunFact]) -> int:
    """Return the tokens per sequence: tokens per consumed sample if constant, else the argument; 0: unknown."""
    samples, tokens = raw.get("consumed samples"), raw.get("consumed tokens")
    if samples is not None and tokens is not None:
        known = samples.recorded & tokens.recorded & (samples.values > 0) & np.isfinite(tokens.values)
        lengths = np.unique(tokens.values[known] / samples.values[known])
        return int(lengths[0]) if len(lengths) == 1 and lengths[0] == int(lengths[0]) else 0
    arguments = {fact.value for fact in facts if fact.key == "argument seq_length"}
    return (count_of(arguments.pop()) or 0) if len(arguments) == 1 else 0


def _deepspeed(columns: Columns, raw: Columns) -> list[str]:
    """Add the values of DeepSpeed's own lines: the learning rate, and the updates skipped since the previous line."""
    if "lr" in raw:
        own = columns.get("learning_rate")
        columns["learning_rate"] = raw["lr"] if own is None else fill_missing(own, raw["lr"])
    if "skipped" not in raw:
        return []
    skipped = raw["skipped"]
    counts = np.diff(skipped.values[skipped.recorded], prepend=skipped.values[skipped.recorded][:1])
    values = np.full(len(skipped.values), np.nan)
    values[skipped.recorded] = np.maximum(counts, 0)
    own = columns.get("skipped_updates")
    if own is None or not own.values[own.recorded].any():
        columns["skipped_updates"] = Numbers(values, skipped.recorded)
        if own is not None:
            return ["skipped updates were taken from DeepSpeed's own lines: Megatron's count stays 0 under DeepSpeed"]
    return []


def _per_attempt(counts: Numbers, steps: NDArray[np.int64]) -> Numbers:
    """Return the share of skipped updates per attempt, 0 to 1, from counts since the previous line."""
    lines = np.flatnonzero(counts.recorded)
    attempts = np.diff(steps[lines])
    usual = np.median(attempts) if len(attempts) else 1  # the first line after a restart has no previous line
    values = counts.values.copy()
    values[lines] /= np.maximum(1, np.concatenate([[usual], attempts]))[: len(lines)]
    return Numbers(np.minimum(values, 1.0), counts.recorded)


def _scales(columns: Columns, rows: StepLines, facts: Sequence[RunFact]) -> list[str]:
    """Take the loss scale from overflow lines, at the next line with a step, if no line with a step has it."""
    scales = [(fact.line, value) for fact in facts if fact.key == "scale" and (value := number(fact.value)) is not None]
    if not scales or "loss_scale" in columns or not len(rows.steps):
        return []
    lines = rows.origin.lines
    values = np.full(len(lines), np.nan)
    for line, value in scales:
        if (place := int(np.searchsorted(lines, line))) < len(lines):
            values[place] = value
    columns["loss_scale"] = Numbers(values, ~np.isnan(values))
    return ["loss_scale is what the last overflow before a line reduced it to; it is not recorded where none was"]


def _without_loss(columns: Columns, raw: Columns, key: str) -> list[str]:
    """Separate lines with a NaN loss from lines of skipped updates; neither prints a loss."""
    trained = raw["learning rate"].recorded if "learning rate" in raw else None
    loss = columns.get("train_loss_raw")
    if trained is None or loss is None or not (absent := trained & ~loss.recorded).any():
        return []
    count = raw.get("number of skipped iterations")
    skipped = absent & (count.values > 0) if count is not None else np.zeros_like(absent)
    fell = absent & ~skipped & _fell(columns.get("loss_scale"), trained)
    broken = absent & ~skipped & ~fell
    columns["train_loss_raw"] = Numbers(loss.values, loss.recorded | broken)
    notes = []
    if fell.any() and "skipped_updates" in columns and "skipped" not in raw:
        own = columns["skipped_updates"]
        columns["skipped_updates"] = Numbers(np.where(fell, 1.0, own.values), own.recorded | fell)
    if (skipped | fell).any():
        repeated = _forget_repeated_norm(columns, skipped | fell, trained)
        notes.append(
            f"{int((skipped | fell).sum()):,} lines have no {key}, because the update was skipped: Megatron counted it, or the "
            f"loss scale fell; {repeated:,} of them print the gradient norm of the line before again: not recorded"
        )
    if broken.any():
        notes.append(
            f"{int(broken.sum()):,} lines have no {key} though no update was skipped: Megatron prints only a mean above zero, so "
            "it was NaN"
        )
    return notes


def _fell(scale: Numbers | None, trained: Mask) -> Mask:
    """Return a mask of the lines whose loss scale is below that of the previous training line."""
    fell = np.zeros(len(trained), bool)
    if scale is not None:
        at = np.flatnonzero(trained & scale.recorded)
        fell[at[1:]] = np.diff(scale.values[at]) < 0
    return fell


def _forget_repeated_norm(columns: Columns, skipped: Mask, trained: Mask) -> int:
    """Mark gradient norms of skipped updates that equal the previous norm as not recorded, and return their number."""
    norm = columns.get("grad_global_norm")
    if norm is None:
        return 0
    at = np.flatnonzero(trained & norm.recorded)
    same = np.zeros(len(skipped), bool)
    same[at[1:]] = np.diff(norm.values[at]) == 0
    columns["grad_global_norm"] = Numbers(norm.values, norm.recorded & ~(skipped & same))
    return int((skipped & same & norm.recorded).sum())


def _not_computed(columns: Columns) -> list[str]:
    norm = columns.get("grad_global_norm")
    if norm is None or norm.values[norm.recorded].any():
        return []
    del columns["grad_global_norm"]
    return ["the gradient norm is 0 in every line, which means that none was computed: not recorded"]
