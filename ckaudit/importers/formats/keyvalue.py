"""Lines of keys and values: nanoGPT, modded-nanogpt, parameter-golf, and programs with similar output.

A line names its step, `step:100/5100 val_loss:3.27 train_time:123ms` or `step 100: train loss 2.0, val loss 2.1`, and then
values by name. Text without a step, such as the program's source before its log, is ignored. A step that goes back to the
beginning starts another run; one that goes back to any other step is a resume.

nanoGPT's `iter N` counts from 0, so it is step N + 1. Its `step N` is after N updates, and the train loss beside a val loss is an
estimate over many batches with dropout off. Its mfu of -100 % means that none is known yet. In modded-nanogpt `train_time` is the
time so far without evaluations, and `step_avg` its mean per step, "nan" in the first ten steps.

build-nanogpt writes `250 train 5.31`, `250 val 5.28` and `250 hella 0.25`, each on its own line; parameter-golf
`500/20000 train_loss: 2.56`; many beginners' exercises `Cost after iteration 9: 0.54`; Deeplearning4j
`Score at iteration 100 is 1.39`; Marian `Up. 1000 : ... : Cost 6.45`; CLU's
writer `logging_writer.py:48] [50] loss=6.3`; Keras-GAN `0 [D loss: 0.69, acc.: 56.25%] [G loss: 1.28]`; verl
`step:12 - actor/entropy:0.3 - critic/rewards/mean:0.6`, with names grouped by slashes: policy losses in it are left out.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import have_adversarial_losses, may_tell_of_rollouts
from ckaudit.importers.names import factor_of, list_names, shorten_name
from ckaudit.importers.notes_on_names import policy_note
from ckaudit.importers.tables.numbers import Numbers, count_of, counts_of, fill_missing, step_number
from ckaudit.importers.text.adversarial_losses import average_sides, take_adversarial_pair
from ckaudit.importers.text.assemble_runs import TextRun
from ckaudit.importers.text.error_lines import shortened
from ckaudit.importers.text.evaluation_lines import key_of_evaluation, with_marked_tests
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import Dialect, RunFact, StepLines
from ckaudit.importers.text.line_values import (
    CLOCKS,
    COUNT,
    OF_MARKED_TEST,
    PAIR,
    SECONDS,
    UNIT,
    Columns,
    is_seconds_per_step,
    is_wanted,
    may_hold_values_ahead,
    name_of,
    with_unit,
)
from ckaudit.importers.text.log import Format, NamedLines, holds_line, read_log
from ckaudit.importers.text.named_lines import (
    losses_of_policy,
    parts_of,
    scores_to_leave_out,
    take_data_time,
    take_step_time_of_speed,
    unused_keys,
    with_only_loss,
    with_reward,
    with_test_loss,
)

NAME = "key:value text log"
GENERIC = True
_STEP = re.compile(
    r"(?<![\w./-])(?:(?:(?:train_|global_|optimizer_)?(?:step|update)s?|iterations?|up\.)|(iter))\s*+(?:[:=#]\s*+)?"
    rf"({COUNT})(?:\s*+/\s*+({COUNT}))?(?![\w.])",
    re.IGNORECASE,
)
NAME_BEFORE = r"(?<![A-Za-z])((?:[A-Za-z]{1,20} ){0,2}(?:loss|cost)) (?:after|at|in|for|of) "
VALUE_BEHIND = r"(?:\s{0,4}(?:is|was|[:=,-])\s{0,4}|\s{1,4})(nan|[-+]?\d{1,20}(?:\.\d{0,20})?(?:e[-+]?\d{1,3})?)(?![\w.])"
_NAME_FIRST = re.compile(
    rf"{NAME_BEFORE}(?:(?:train_|global_|optimizer_)?(?:step|update)|iteration)\s{{0,2}}[#:]?\s{{0,2}}({COUNT}){VALUE_BEHIND}",
    re.IGNORECASE,
)
_SCORE_TO_LOWER = re.compile(  # as Deeplearning4j writes the loss
    rf"Score at iteration ({COUNT}) is (nan|[-+]?\d{{1,20}}(?:\.\d{{0,20}})?(?:e[-+]?\d{{1,3}})?)", re.IGNORECASE
)
_BARE = re.compile(r"(\d+) (train|val|hella) (\d+\.\d+)\s*\Z")
_CLU = re.compile(r".{0,80}logging_writer\.py:\d{1,6}\] \[(\d{1,12})\] ")
_IN_BRACKETS = re.compile(r"(\d{1,12}) \[(?=[A-Za-z]\w{0,8} loss: )")
_STEP_IN_BRACKETS = re.compile(r"\[ {0,8}(\d{1,12})\] (?=[A-Za-z]\w{0,20} ?[=:] ?[-\d])")  # as `[  15] nll=7.87 lr=5e-03`
_OF_ALL = re.compile(rf"({COUNT})/({COUNT}) (?=(?:\w+[_ ])?loss ?[:=])")
_SOURCE_AND_TARGET = re.compile(r"(?<![\w/])\d{1,9}/ {0,8}(\d{1,9}) tok/s")  # in OpenNMT: tokens read, and tokens trained on
_MAX_CHARACTERS_AHEAD = 100  # the step must begin within so many characters
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
_BARE_HINTS = (" train ", " val ", " hella ")
_HINTS = ("step", "Up. ", "iter", "Step", "Iter", "update", "loss", "nll", "Score at", "logging_writer.py", *_BARE_HINTS)
_MARKS = tuple(hint.encode() for hint in _HINTS)
_COUNTS = ("parameters", "seed", "world_size", "sequence_length", "vocabulary")


def detects(source: Source) -> bool:
    """Tell whether a line names a step and a known value."""
    return holds_line(source, _MARKS, _known_cells)


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read lines of keys and values.

    Raises:
        UnreadableError: Where no step has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    cells = _cells if columns else _known_cells
    chosen = set(columns.values())
    dialect = Dialect(
        NAME, (*_HINTS, "STEP", "ITER"), cells, lambda key: key in chosen or is_wanted(key), is_derived, _NEEDLES, _facts
    )
    return read_log(source, columns, Format(dialect, meaning, _manifest))


def _known_cells(line: str, start: int) -> list[Cell] | None:
    """Return the values of a line that has a step, and a known value, the time so far or adversarial losses; else None."""
    cells = _cells(line, start)
    if not cells or any(name_of(cell.key) or cell.key in CLOCKS or cell.key == OF_MARKED_TEST for cell in cells):
        return cells
    return cells if have_adversarial_losses(cell.key for cell in cells) else None


def _cells(line: str, start: int) -> list[Cell] | None:
    if start < len(line) and line[start] in "#{<\"'`*>|":
        return None
    if name_first := _NAME_FIRST.search(line, start, start + _MAX_CHARACTERS_AHEAD):
        return [Cell("step", *name_first.span(2)), Cell(name_first[1].lower(), *name_first.span(3))]
    if score := _SCORE_TO_LOWER.search(line, start, start + 2 * _MAX_CHARACTERS_AHEAD):
        return [Cell("step", *score.span(1)), Cell("loss", *score.span(2))]
    if bare := _BARE.match(line, start):
        return [Cell("step", *bare.span(1)), Cell(bare[2], *bare.span(3))]
    if match := _IN_BRACKETS.match(line, start) or _STEP_IN_BRACKETS.match(line, start):
        cells = [Cell("step", *match.span(1))]
    elif match := _OF_ALL.match(line, start):
        cells = [Cell("step", *match.span(1)), Cell("total", *match.span(2))]
    elif match := _CLU.match(line):
        cells = [Cell("step", *match.span(1))]
    elif match := _STEP.search(line, start, start + _MAX_CHARACTERS_AHEAD):
        cells = [Cell("iter" if match[1] else "step", *match.span(2))]
        cells += [Cell("total", *match.span(3))] if match[3] else []
    else:
        return None
    seen = {cell.key for cell in cells}
    if match[0].lower().startswith("up."):
        seen |= {"time", "time [s]"}  # the time of all updates since the previous line
    cells += _pairs(line, match.end(), seen, start)
    cells += _pairs_ahead(line, start, match.start(), seen)
    return sorted(cells, key=lambda cell: cell.start) if len(cells) > 1 else None


def _pairs(line: str, begin: int, seen: set[str], start: int) -> Iterator[Cell]:
    """Yield the values of a line after its step, except for the keys that were seen; `start` is where its text begins."""
    for pair in PAIR.finditer(line, begin):
        name = key_of_evaluation(pair[1].lower(), line[start : pair.start()])
        key = f"{name} [{pair[3]}]" if pair[3] else with_unit(name, line, pair.end(2))
        if key not in seen:
            seen.add(key)
            yield Cell(key, *pair.span(2))
    if "tok/s" not in seen and (speed := _SOURCE_AND_TARGET.search(line, begin)):
        yield Cell("tok/s", *speed.span(1))


def _pairs_ahead(line: str, start: int, end: int, seen: set[str]) -> Iterator[Cell]:
    """Yield the known values before the step: TensorFlow's estimators write `loss = 2.5, step = 100 (1.2 sec)`."""
    for pair in PAIR.finditer(line, start, end) if may_hold_values_ahead(line[start:end]) else ():
        key = key_of_evaluation(pair[1].lower(), line[start : pair.start()])
        if key not in seen and (name_of(key) or may_tell_of_rollouts(key)):
            seen.add(key)
            yield Cell(key, *pair.span(2))


def _facts(text: str) -> Iterator[tuple[str, str]]:
    for key, pattern in _FACTS:
        if match := pattern.search(text):
            yield key, match[1]


def _manifest(manifest: Manifest, facts: Sequence[RunFact], run: TextRun) -> list[str]:
    """Set sizes and planned steps in the manifest, and return notes on how the run ended."""
    values = {fact.key: fact.value.replace(",", "") for fact in facts}
    for key in _COUNTS:
        if (count := count_of(values.get(key, ""))) is not None:
            setattr(manifest, key, count)
    if "size" in values:
        manifest.model_scale_hint = values["size"]
    planned = run.parts[-1].rows.columns.get(".planned")
    if planned is not None and planned.recorded.any():
        last = step_number(float(planned.values[planned.recorded][-1]))
        manifest.planned_steps = UNSET if last is None else last
    notes = []
    if "stopped" in values:
        notes.append(f"the program stopped itself before the last planned step: {shortened(values['stopped'])}")
    if "final" in values:
        notes.append(f"losses without a step were left out, such as {values['final']}, taken after training")
    return notes


# Meaning of the keys: their units, and the step that a program counts from.
def is_derived(key: str) -> bool:
    """Tell whether a key only repeats others in another form."""
    return key.startswith(("step_avg", "train_time"))


def meaning(rows: StepLines, mapped: Mapping[str, str], facts: Sequence[RunFact]) -> NamedLines:
    """Give the columns catalogue names and units, and convert steps to finished updates."""
    averaged = average_sides(with_marked_tests(rows.columns))
    raw = averaged.columns
    columns: Columns = {}
    taken, in_other_units = list[str](), list[str]()
    parts = {key: name for name, key in parts_of(raw).items() if name not in mapped.values()} | {**averaged.parts}
    mapped = {**parts, **with_reward(raw, with_only_loss(raw, with_test_loss(raw, mapped)))}
    hidden = losses_of_policy(raw, mapped)
    scores = scores_to_leave_out(raw)
    elapsed = _elapsed(raw, mapped)
    for key, column in raw.items():
        if key in elapsed or (key in scores and key not in mapped):
            continue
        name = mapped.get(key) or (common if (common := name_of(key)) not in mapped.values() else None)
        if not name or key in hidden:
            continue
        if (scaled := _scaled(key, name, column)) is None:
            in_other_units += [shorten_name(key)] if name != "step_time" else []
        else:
            columns[name] = fill_missing(columns[name], scaled) if name in columns else scaled
            taken.append(f"{name} from {shorten_name(key)}")
    if "total" in raw:
        columns[".planned"] = raw["total"]
    summed, pair = take_adversarial_pair(columns, raw)
    notes = [f"left out, because of their units: {list_names(in_other_units)}"] if in_other_units else []
    notes += [*averaged.notes, *summed, *policy_note(list(raw), hidden), *_estimates(columns, raw, mapped)]
    timed, together = take_data_time(columns, raw)
    notes += timed + _durations(columns, rows, elapsed) + take_step_time_of_speed(columns, raw)
    notes += _tokens(columns, rows, facts)
    steps, step_notes = _steps(rows, columns)
    used = (*parts, *together, *averaged.used, *pair, *mapped)
    return NamedLines(
        StepLines(steps, rows.origin, columns),
        [f"taken: {', '.join(taken)}", *step_notes, *notes],
        used,
        unused_keys(raw, {*used, *hidden}),
    )


def _scaled(key: str, name: str, column: Numbers) -> Numbers | None:
    """Return a column in the catalogue's unit, or None where its unit belongs to another quantity."""
    match = UNIT.fullmatch(key)
    unit = (match[2] or "").lower() if match else ""
    if name == "step_time":
        factor = SECONDS.get(unit or ("s" if is_seconds_per_step(key) else ""))
        return None if factor is None else Numbers(column.values * factor, column.recorded & np.isfinite(column.values))
    if name == "mfu":
        values = column.values / 100 if unit == "%" else column.values
        return Numbers(values, column.recorded & (values > 0))
    if name == "gpu_mem_used":
        return column.times(factor_of(key))
    return column if unit in ("", "tok", "nats") else None


def _estimates(columns: Columns, raw: Columns, mapped: Mapping[str, str]) -> list[str]:
    """Separate the loss of an update from the train loss that an evaluation estimates; keep only the former if both exist."""
    key = next((key for key in ("train loss",) if key in raw and key not in mapped), None)
    if key is None or "val_loss" not in columns:
        return []
    estimate = raw[key].recorded & columns["val_loss"].recorded
    loss = columns["train_loss_raw"]
    own = loss.recorded & ~estimate
    if not estimate.any():
        return []
    if own.any():
        columns["train_loss_raw"] = Numbers(np.where(own, loss.values, np.nan), own)
        return [
            "the train loss beside each val loss was left out: it is an estimate over many batches, not the loss of an update"
        ]
    return [
        "no line has the loss of an update: the train loss beside each val loss, an estimate over many batches, was taken for it"
    ]


def _elapsed(
    raw: Columns, mapped: Mapping[str, str], *, min_lines: int = 10, min_growth: float = 5.0, max_falls: float = 0.02
) -> dict[str, float]:
    """Return the keys of step times that hardly ever fall and grow `min_growth`-fold, with their unit in seconds: a clock."""
    clocks = {}
    for key, column in raw.items():
        match, values = UNIT.fullmatch(key), column.values[column.recorded & np.isfinite(column.values)]
        factor = SECONDS.get((match[2] if match else None) or "s")
        if key in mapped or name_of(key) != "step_time" or factor is None or len(values) < min_lines:
            continue
        if (np.diff(values) < 0).mean() <= max_falls and values[-1] > min_growth * values[0] >= 0:
            clocks[key] = factor
    return clocks


def _durations(columns: Columns, rows: StepLines, elapsed: Mapping[str, float]) -> list[str]:
    """Compute the duration of a step from the time so far: the mean over the steps since the previous line."""
    if "step_time" in columns:
        return []
    clocks = {key: factor for key, factor in {**CLOCKS, **elapsed}.items() if key in rows.columns}
    if not clocks:
        return []
    key, factor = next(iter(clocks.items()))
    clock = rows.columns[key]
    known = clock.recorded & np.isfinite(clock.values)
    evaluated = columns["val_loss"].recorded if "val_loss" in columns else np.zeros(len(known), bool)
    if (known & ~evaluated).any():
        known &= ~evaluated
    at = np.flatnonzero(known)
    values = np.full(len(known), np.nan)
    steps, passed = np.diff(rows.steps[at]), np.diff(clock.values[at]) * factor
    with np.errstate(divide="ignore", invalid="ignore"):
        values[at[1:]] = np.where((steps > 0) & (passed > 0), passed / steps, np.nan)
    columns["step_time"] = Numbers(values, ~np.isnan(values))
    return [f"step_time was taken from the differences of {key}"]


def _tokens(columns: Columns, rows: StepLines, facts: Sequence[RunFact]) -> list[str]:
    """Set the tokens per update, and the tokens per second that follow, at each line where the program logs one such number."""
    sizes = set(counts_of(fact.value for fact in facts if fact.key == "tokens_per_update"))
    if len(sizes) != 1 or "tokens_per_update" in columns:
        return []
    size = float(sizes.pop())
    columns["tokens_per_update"] = Numbers(np.full(len(rows.steps), size), np.ones(len(rows.steps), bool))
    if "step_time" in columns and "tokens_per_sec" not in columns:
        passed = columns["step_time"]
        columns["tokens_per_sec"] = Numbers(size / np.where(passed.recorded, passed.values, np.nan), passed.recorded)
    return []


def _steps(rows: StepLines, columns: Columns) -> tuple[np.ndarray, list[str]]:
    """Return finished update attempts: a loss printed for step 0 is the loss of the first update."""
    loss = columns.get("train_loss_raw")
    if loss is None:
        return rows.steps, []
    trained = loss.recorded & ~columns["val_loss"].recorded if "val_loss" in columns else loss.recorded
    counted = rows.columns["iter"].recorded if "iter" in rows.columns else np.zeros(len(trained), bool)
    if (trained & counted).any():
        return np.where(trained & counted, rows.steps + 1, rows.steps), ["iter N counts from 0, so it was taken as step N + 1"]
    if (trained & (rows.steps == 0)).any():
        return np.where(trained, rows.steps + 1, rows.steps), ["its training lines count from 0: N was taken as step N + 1"]
    return rows.steps, []
