"""Values in lines of text: pairs of a name and a number, their catalogue names, and columns with those names."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from ckaudit.contract.schema.loss_names import loss_part_of, may_be_adversarial
from ckaudit.contract.schema.manifest import StepUnit
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import logs_rollouts, loss_parts, may_be_a_cost, may_be_a_loss, only_loss
from ckaudit.importers.names import (
    catalogue_name,
    factor_of,
    is_test_loss,
    list_names,
    only_test_loss,
    policy_losses,
    shorten_name,
)
from ckaudit.importers.notes_on_names import policy_note
from ckaudit.importers.tables.data_loading_time import named_times, take_times
from ckaudit.importers.tables.numbers import NOT_FINITE, Numbers, fill_missing, number
from ckaudit.importers.text.adversarial_losses import average_sides, discriminator_accuracies, take_adversarial_pair
from ckaudit.importers.text.error_lines import error_lines
from ckaudit.importers.text.line_patterns import Cell
from ckaudit.importers.text.line_reader import LogContent, RunFact, StepLines
from ckaudit.importers.text.log import Format, NamedLines, no_run_facts, parsed_dialect, read_scanned
from ckaudit.importers.text.prefix import MAX_LINE

COUNT = r"(?:[1-9]\d{0,2}(?:,\d{3})++(?!,?\d)|\d++)"
"""A pattern for counts, which may have thousands separators."""

PAIR = re.compile(
    r"(?<![\w./-])([A-Za-z_](?:[\w/.@]|-(?=[A-Za-z]))*(?: [A-Za-z_][\w/.@]*){0,2})"
    r"(?:\s*(?:[:=]|=>|-{1,2}>)\s*|\s+|[ :=]{0,3}['\"], ?)"
    r"(?:\[?(?:(?:tf\.)?tensor|array|np\.float(?:16|32|64))\([\[ ]{0,4}|\[(?=[-+]?\d{1,20}\.\d{0,20}\]))?"
    rf"([-+]?(?:{NOT_FINITE}|(?:[1-9]\d{{0,2}}(?:,\d{{3}})+|\d+(?!,\d))(?:\.\d*)?(?:[eE][-+]?\d+)?|\.\d+))"
    r"(?=([A-Za-z%]{0,9})(?:[\s,;|)\]}/]|$))",
    re.IGNORECASE,
)
SECONDS = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "sec": 1.0, "m": 60.0}
UNIT = re.compile(r"(.*?)(?: \[(.+)\])?")
CLOCKS = {f"train_time [{unit}]": SECONDS[unit] for unit in ("ms", "s", "m")}
OF_TEST = "test loss"
TEST = re.compile(r"(?<![A-Za-z])(?:test|testing)(?![A-Za-z])", re.IGNORECASE)
_SPEED = re.compile(r"s, {1,8}(\d{1,12}(?:\.\d{0,6})?)/s")  # after the time of a batch, as timm writes it
_MEAN_SO_FAR = re.compile(r" \( {0,4}(\d{1,12}\.\d{1,12})\)")  # as PyTorch's ImageNet example writes it
_FIRST_OF_CLASSES = ("prec@1", "acc@1")
_CURRENT = re.compile(r"(?<![A-Za-z])(cur|best) metric, ", re.IGNORECASE)
_OF_TRAINING = re.compile(r"(?<![a-z])(?:tr|trn|train|training)(?![a-z])")
_HELD_OUT = re.compile(r"(?<![A-Za-z])(?:val|valid|validation|eval|evaluation|dev)(?![A-Za-z])", re.IGNORECASE)
_LOOKS_BACK = re.compile(r"(?<![a-z])(?:best|lowest|highest|min|max|final|early|load|resum|restor|sav|improv)", re.IGNORECASE)
_MEAN = re.compile(r"[ _](?:avg|average|mean|is)\Z|\A(?:avg|average|mean)\d{0,4}[ _]")
_OWN = {
    "train": "train_loss_raw",
    "val": "val_loss",
    "cost": "train_loss_raw",
    "train cost": "train_loss_raw",
    "training cost": "train_loss_raw",
    "validation cost": "val_loss",
    "hella": "microbench_score/hellaswag",
    "norm": "grad_global_norm",
    "gradnorm": "grad_global_norm",
    "gnorm": "grad_global_norm",
    "ce-mean-words": "val_loss",
    "mfu": "mfu",
    "dt": "step_time",
    "time": "step_time",
    "step_time": "step_time",
    "loss_scale": "loss_scale",
    "tok/s": "tokens_per_sec",
}
OF_MARKED_TEST = "loss of a test"
"""The key of a bare loss in a line that speaks of a test; "test" may also be the name of the run."""

_HELPERS = frozenset({"step", "iter", "total", OF_MARKED_TEST, *CLOCKS})
_BEHIND = re.compile(r" ?(s|sec|[a-z]{2,12}/s(?:ec)?|[GM]i?B)(?![\w/])")
_PER_SECOND = re.compile(r"(?:(?:train|timing|perf|global|speed)_)?(?:steps?|iters?|iterations?|it)_(?:per_)?(?:s|sec|second)")
Columns = dict[str, Numbers]


def with_unit(key: str, line: str, end: int) -> str:
    """Return a key with the unit that follows its number, if only both together show its meaning.

    >>> with_unit("ips", "ips: 120.8 samples/s,", 10), with_unit("loss", "loss: 120.8 s", 11)
    ('ips samples/s', 'loss')
    """
    unit = _BEHIND.match(line, end)
    full = f"{key} {unit[1]}" if unit else key
    return full if unit and name_of(key) is None and (name_of(full) or is_steps_per_second(full)) else key


@lru_cache(maxsize=4096)
def is_steps_per_second(key: str) -> bool:
    """Tell whether a key means steps per second.

    >>> is_steps_per_second("steps_per_sec"), is_steps_per_second("speed step/s"), is_steps_per_second("computation steps/s")
    (True, True, False)
    """
    return bool(_PER_SECOND.fullmatch(re.sub(r"[ /]", "_", key)))


def is_seconds_per_step(key: str) -> bool:
    """Tell whether a key says by itself that it is the seconds per step; `time` may be that of anything."""
    return key not in _OWN and name_of(key) == "step_time"


def may_hold_values_ahead(text: str) -> bool:
    """Tell whether values before a step or an epoch are of that step: those of the best one, or of a saved one, are not.

    >>> may_hold_values_ahead("loss: 2.31, "), may_hold_values_ahead("Best val_loss: 2.31 at ")
    (True, False)
    """
    return not _LOOKS_BACK.search(text)


def losses_of_policy(raw: Mapping[str, Numbers], mapped: Mapping[str, str]) -> list[str]:
    """Return the keys of finite training losses beside a policy's returns, except those that the user named.

    A loss with NaN or infinity is not included, because that is an illness of any loss.
    """
    keys = list(raw)
    if "train_loss_raw" in mapped.values() or not logs_rollouts(keys):
        return []
    losses = [keys[position] for position in policy_losses(keys) if name_of(keys[position]) == "train_loss_raw"]
    return [key for key in losses if np.isfinite(raw[key].values[raw[key].recorded]).all()]


def take_data_time(columns: Columns, raw: Mapping[str, Numbers]) -> tuple[list[str], tuple[str, ...]]:
    """Add step time and share of waiting for data, where lines hold both times; return a note and their keys."""
    times = named_times(list(raw))
    notes = take_times(columns, times, raw) if times and "step_time" not in columns else []
    return notes, (times.data, times.whole) if times and notes else ()


def take_step_time_of_speed(columns: Columns, raw: Mapping[str, Numbers]) -> list[str]:
    """Add the step time from the steps per second where no other key gives it, and return a note on it."""
    key = next((key for key in raw if is_steps_per_second(key)), None)
    if key is None or "step_time" in columns:
        return []
    known = raw[key].recorded & (raw[key].values > 0) & np.isfinite(raw[key].values)
    columns["step_time"] = Numbers(1 / np.where(known, raw[key].values, np.nan), known)
    return [f"step_time is one over {shorten_name(key)}"]


@lru_cache(maxsize=4096)  # a log has few keys, which all its lines share
def name_of(key: str) -> str | None:
    """Return the catalogue name of a key, without its unit in brackets; None where the key is unknown.

    >>> name_of("val loss"), name_of("time [ms]"), name_of("lr_mul"), name_of("gpu_mem [gib]")
    ('val_loss', 'step_time', None, 'gpu_mem_used')
    """
    match = UNIT.fullmatch(key)
    bare = match[1] if match else key
    name = _OWN.get(bare) or catalogue_name(bare) or catalogue_name(key)
    return None if name in ("step", "time") else name


def is_wanted(key: str) -> bool:
    """Tell whether a key is a metric of the catalogue, or helps to compute one."""
    return (
        key in _HELPERS
        or name_of(key) is not None
        or is_test_loss(key)
        or loss_part_of(key) is not None
        or is_steps_per_second(key)
        or may_be_adversarial(key)
        or _may_be_of_a_loss(key)
    )


def _may_be_of_a_loss(key: str) -> bool:
    """Tell whether a key without a common name may be the loss, or a term of it."""
    return may_be_a_cost(key) or may_be_a_loss(key)


def unused_keys(columns: Columns, used: Collection[str]) -> tuple[str, ...]:
    """Return the keys that were read because they might be losses, and were not used."""
    free = (key for key in columns if name_of(key) is None and key not in used)
    return tuple(key for key in free if _may_be_of_a_loss(key) or may_be_adversarial(key))


def with_only_loss(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's mapping, with the only error measure added as the training loss where no key names a loss."""
    keys = list(columns)
    if {"train_loss_raw", "val_loss"} & {mapped.get(key) or name_of(key) for key in keys} or logs_rollouts(keys):
        return mapped
    if (lone := only_loss(keys)) is None:
        return mapped
    twin = {} if lone.val is None else {keys[lone.val]: "val_loss"}
    return {keys[lone.train]: "train_loss_raw", **twin, **mapped}


def read_named_lines(
    source: Source,
    columns: Mapping[str, str],
    name: str,
    rows: StepLines,
    *,
    notes: Sequence[str] = (),
    left_out: Sequence[str] = (),
    step_unit: StepUnit | UnsetType = UNSET,
) -> list[Imported]:
    """Return the runs of a log from its lines, where the log has no other facts about its runs.

    Args:
        source: The log.
        columns: Catalogue names of the keys that the user named.
        name: The name of the format.
        rows: The lines, with their columns by key.
        notes: How the lines were obtained.
        left_out: Keys that are not read.
        step_unit: The unit of a step, if it is not an update.

    Raises:
        UnreadableError: Where no line has a value.
        UsageError: Where `columns` names a key that no line holds.
    """
    log = LogContent(rows, [], error_lines(source.data), source.line_count, [], [*left_out])

    def meaning(rows: StepLines, mapped: Mapping[str, str], _: Sequence[RunFact]) -> NamedLines:
        return replace(named_lines(rows, mapped, notes), step_unit=step_unit)

    return read_scanned(log, source, columns, Format(parsed_dialect(name, is_wanted), meaning, no_run_facts))


def named_lines(rows: StepLines, mapped: Mapping[str, str], notes: Sequence[str]) -> NamedLines:
    """Give the columns of a log without units and clocks their catalogue names.

    Args:
        rows: The lines, with their columns by key.
        mapped: Catalogue name of each key that the user named.
        notes: How the lines were obtained.
    """
    columns: Columns = {}
    taken = []
    averaged = average_sides(rows.columns)
    rows = replace(rows, columns=averaged.columns)
    parts = {key: name for name, key in parts_of(rows.columns).items() if name not in mapped.values()} | {**averaged.parts}
    mapped = {**parts, **with_only_loss(rows.columns, with_test_loss(rows.columns, mapped))}
    of_policy = losses_of_policy(rows.columns, mapped)
    scores = scores_to_leave_out(rows.columns)
    doubled = _beside_training_loss(rows, {*mapped, *scores})
    again = _beside_held_out_loss(rows, {*mapped, *scores})
    hidden = {*of_policy, *doubled, *again}
    for key, column in rows.columns.items():
        name = mapped.get(key) or name_of(key)
        if (
            name
            and (key not in scores or key in mapped)
            and key not in hidden
            and name not in ("step", "time")
            and (name != "step_time" or key in mapped or is_seconds_per_step(key))
        ):
            scaled = column.times(factor_of(key)) if name == "gpu_mem_used" else column
            columns[name] = fill_missing(columns[name], scaled) if name in columns else scaled
            taken.append(f"{name} from {shorten_name(key)}")
    naming_notes = [f"taken: {', '.join(taken)}"] if taken else []
    naming_notes += policy_note(list(rows.columns), of_policy)
    naming_notes += (
        [f"{list_names(doubled)} was left out: a loss that says it is of training stands at its steps"] if doubled else []
    )
    naming_notes += [f"{list_names(again)} was left out: another held-out loss stands at its steps"] if again else []
    timed, together = take_data_time(columns, rows.columns)
    naming_notes += timed + take_step_time_of_speed(columns, rows.columns)
    summed, pair = take_adversarial_pair(columns, rows.columns)
    naming_notes += [*averaged.notes, *summed]
    used = (*parts, *together, *averaged.used, *pair, *mapped)
    return NamedLines(
        StepLines(rows.steps, rows.origin, columns), [*naming_notes, *notes], used, unused_keys(rows.columns, {*used, *hidden})
    )


def _beside_training_loss(rows: StepLines, apart: Collection[str], *, min_share: float = 0.9) -> list[str]:
    """Return the keys of bare losses where another loss, named as a training loss, occurs at nearly all of the same steps.

    Lines of a final test have a bare loss too.
    """
    keys = [key for key in rows.columns if key not in apart and name_of(key) == "train_loss_raw"]
    plain = [key for key in keys if not _OF_TRAINING.search(key)]
    known = {key: set(rows.steps[rows.columns[key].recorded].tolist()) for key in keys if plain and len(plain) < len(keys)}
    named = set().union(*(known[key] for key in known if key not in plain))
    return [key for key in plain if named and len(named) >= min_share * len(known[key])]


def _beside_held_out_loss(rows: StepLines, apart: Collection[str], *, min_share: float = 0.9) -> list[str]:
    """Return the keys of held-out losses other than the first, where that occurs at nearly all of the same steps."""
    keys = [key for key in rows.columns if key not in apart and name_of(key) == "val_loss"]
    known = {key: set(rows.steps[rows.columns[key].recorded].tolist()) for key in keys}
    return [key for key in keys[1:] if len(known[key] & known[keys[0]]) >= min_share * max(1, len(known[key]))]


def scores_to_leave_out(keys: Iterable[str]) -> frozenset[str]:
    """Return the keys whose numbers are neither a loss nor a score of the model.

    Beside a loss, these are scores named by their data alone, as in `Loss: 1.9, Train: 0.43, Val: 0.34`; elsewhere they are a
    discriminator's accuracies.
    """
    keys = set(keys)
    has_loss = any("loss" in key and name_of(key) in ("train_loss_raw", "val_loss") for key in keys)
    return frozenset(keys & {"train", "val"}) if has_loss else discriminator_accuracies(keys)


def parts_of(columns: Columns) -> dict[str, str]:
    """Return the keys of loss terms that are taken beside the loss, by catalogue name."""
    keys = list(columns)
    return {name: keys[position] for name, position in loss_parts(keys).items()}


def with_test_loss(columns: Columns, mapped: Mapping[str, str]) -> Mapping[str, str]:
    """Return the user's mapping, with the test loss added as the held-out loss where there is no other."""
    keys = list(columns)
    tested = None if "val_loss" in mapped.values() else only_test_loss(keys)
    return mapped if tested is None else {keys[tested]: "val_loss", **mapped}


def repeated_names(text: str, *, max_lines: int = 2000, min_lines: int = 3) -> list[str]:
    """Return the names that precede a number in several of the first lines, most frequent first."""
    lines = (line for line in text.splitlines()[:max_lines] if len(line) <= MAX_LINE)
    counts = Counter(name for line in lines for name in dict.fromkeys(pair[1] for pair in PAIR.finditer(line)))
    return [name.lower() for name, count in counts.most_common() if count >= min_lines and catalogue_name(name) != "step"]


def known_values(line: str, phase: str = "") -> dict[str, float]:
    """Return the numbers of a line with known names, by key; thousands separators are removed.

    >>> known_values("loss: 2.5 mood: 3"), known_values("loss: 2.5", phase="eval ")
    ({'loss': 2.5}, {'val loss': 2.5})
    """
    pairs = ((cell.key, number(line[cell.start : cell.end].replace(",", ""))) for cell in value_cells(line, phase=phase))
    return {key: value for key, value in pairs if value is not None and name_of(key)}


def has_training_loss(keys: Iterable[str]) -> bool:
    """Tell whether one of some keys is a training loss.

    >>> has_training_loss(["val loss"]), has_training_loss(["lr", "loss"])
    (False, True)
    """
    return any(name_of(key) == "train_loss_raw" for key in keys)


def value_cells(line: str, begin: int = 0, phase: str = "") -> list[Cell]:
    """Return the values of a line by key: `loss` becomes "val loss" in a validation line and "test loss" in a test line.

    Args:
        line: The line.
        begin: Where its values begin.
        phase: The word for the evaluation that an earlier line announced; empty where none did.
    """
    cells: dict[str, Cell] = {}
    judged = _CURRENT.search(line)
    for pair in PAIR.finditer(line, begin):
        if line.startswith("%|", pair.end()):  # the position of a progress bar
            continue
        key, span = with_unit(_key_of(pair[1]), line, pair.end(2)), pair.span(2)
        if key == "time" and (speed := _SPEED.match(line, pair.end(2))):
            key = "seconds per step"
            cells.setdefault("samples per second", Cell("samples per second", *speed.span(1)))
        if key == "loss" or (key.endswith("loss") and name_of(key) == "train_loss_raw" and "train" not in key):
            before = phase + line[: pair.start()]
            key = OF_TEST if TEST.search(before) else "val loss" if _HELD_OUT.search(before) else key
            if key in (OF_TEST, "val loss"):
                span = _mean_so_far(line, pair)
        elif judged:  # as PaddleOCR reports an evaluation
            key = f"{'val' if judged[1].lower() == 'cur' else 'best'} {key}"
        elif key in _FIRST_OF_CLASSES and (word := _HELD_OUT.search(line[: pair.start()]) or TEST.search(line[: pair.start()])):
            key, span = f"{word[0].lower()} acc1", _mean_so_far(line, pair)
        cells.setdefault(key, Cell(key, *span))
    return list(cells.values())


def _mean_so_far(line: str, pair: re.Match[str]) -> tuple[int, int]:
    """Return the span of the mean over all batches so far, in brackets behind the value of one; without it, of that value."""
    mean = _MEAN_SO_FAR.match(line, pair.end(2))
    return mean.span(1) if mean else pair.span(2)


@lru_cache(maxsize=4096)  # a log has few keys, which its lines share
def _key_of(name: str) -> str:
    key = name.lower()
    return key if name_of(key) else _MEAN.sub("", key)
