"""Runs from a tracker's store: series by catalogue name, statistics of layers, and settings in the manifest."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct, field

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.kinds_of_loss import adversarial_pair, have_adversarial_losses, loss_kind_of_names
from ckaudit.importers.layers.to_checkpoints import LayerStatistics
from ckaudit.importers.names import (
    catalogue_name,
    list_names,
    parts_of_loss,
    policy_losses,
    recognise_columns,
    resolve_columns,
    slices_of,
    writable,
)
from ckaudit.importers.notes_on_names import note_on_other_choices, note_on_taken, notes_on_left_out
from ckaudit.importers.tables.curves import broken_losses
from ckaudit.importers.tables.merge import merge_notes
from ckaudit.importers.tables.numbers import number, recorded_in_full, step_number
from ckaudit.importers.trackers.points import LoggedSeries, is_all_at_step_zero, merge_series, renumbered

MAX_SETTINGS = 1000
MAX_DEPTH = 8
MAX_TEXT = 2000
_NO_CURVE = ("step", "time")
_NO_LAYERS = "no statistics of single tensors were logged: weights, gradients, activations, attention"
_PLAIN_LINE = re.compile(r"([\w./-]+): ([^\s#&*!|>%@`{\[][^#]*)")
_OF_A_TRAINER = {"per_device_train_batch_size", "max_grad_norm", "max_steps"}  # only Hugging Face's arguments have all three


class TrackedRun(Struct):
    """One run as its store holds it.

    Attributes:
        name: Its name among several.
        series: Points by the store's own names.
        notes: How it was read.
        layers: Histograms that were already collected.
        starts: For each restart, its time and the first step that is logged again.
        usual: The writer's own names by catalogue name; they take precedence over common names.
        aside: Names that have another meaning with this writer, and are left out.
        manifest: The store's facts about the whole run.
    """

    name: str
    series: dict[str, LoggedSeries]
    notes: list[str] = field(default_factory=list)
    layers: LayerStatistics = field(default_factory=LayerStatistics)
    starts: list[tuple[float, int]] = field(default_factory=list)
    usual: Mapping[str, str] = field(default_factory=dict)
    aside: set[str] = field(default_factory=set)
    manifest: Manifest = field(default_factory=lambda: Manifest(schema_version="ck.run.v1"))


def runs_of(runs: Sequence[TrackedRun], columns: Mapping[str, str], shown: str, source: str) -> list[Imported]:
    """Return the runs that hold a known series or layer; a note names the others.

    Args:
        runs: All runs of the source.
        columns: The store's own names that the user mapped, by catalogue name.
        shown: The source's name in messages.
        source: The format.

    Raises:
        UnreadableError: Where no run holds a series with a known name.
        UsageError: Where `columns` names something that does not exist, or the step or time, which every point has.
    """
    names = list(dict.fromkeys(name for tracked in runs for name in tracked.series))
    mapped = {name: names[position] for name, position in resolve_columns(columns, names).items()}
    if "step" in mapped or "time" in mapped:
        raise UsageError(f"every point of {source} has its own step and time", hint="Map values only, as in --map loss=NAME.")
    pairs = [(tracked, _imported(tracked, mapped, source)) for tracked in runs]
    imported = [run for _, run in pairs if run is not None]
    empty = [tracked.name or "(no name)" for tracked, run in pairs if run is None]
    if not imported:
        raise _nothing(names, shown, source)
    if not empty:
        return imported
    note = f"{len(empty):,} more runs hold no series that is known and were left out: {list_names(empty)}"
    return [Imported(run.table, run.manifest, (*run.notes, note), run.source, run.name, run.documents) for run in imported]


def number_equal_names(runs: Sequence[TrackedRun]) -> None:
    """Add a number to each run whose name is not unique."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    for run in runs:
        seen[run.name] += 1
        if counts[run.name] > 1:
            run.name = f"{run.name} ({seen[run.name]})"


def _nothing(names: Sequence[str], shown: str, source: str) -> UnreadableError:
    if not names:
        return UnreadableError(f"{shown} is {source}, but no number was logged to it", hint="Look whether the job got that far.")
    return UnreadableError(
        f"{shown} is {source}, but none of its series has a name that is known: {list_names(names)}",
        hint="Name them, as in --map loss=NAME.",
    )


def _imported(tracked: TrackedRun, mapped: Mapping[str, str], source: str) -> Imported | None:
    """Return a run, or None where it holds neither a known series nor a layer."""
    summed = _add_sums(tracked)
    chosen, notes_on_names = _chosen(tracked, mapped)
    curves, notes_on_steps = _with_steps([(name, tracked.series[foreign]) for name, foreign in chosen.items()])
    merged = merge_series(curves, tracked.starts)
    others = [name for name in tracked.series if name not in chosen.values() and catalogue_name(name) not in _NO_CURVE]
    unknown = [name for name in others if name not in tracked.aside and not _take_layer(tracked, name)]
    documents = tracked.layers.documents()
    if not len(merged.table.steps) and not len(documents):
        return None
    points = sum(len(series.steps) for series in tracked.series.values())
    notes = [
        f"read as {source}: {points:,} points of {len(tracked.series):,} series",
        *note_on_taken(chosen),
        *summed,
        *notes_on_names,
        *notes_on_steps,
        *notes_on_left_out(unknown, chosen.values()),
        *tracked.notes,
        *merge_notes(merged),
        *tracked.layers.notes(),
        *([] if len(documents) else [_NO_LAYERS]),
    ]
    return Imported(merged.table, _manifest(tracked, chosen, source), tuple(notes), source, tracked.name, documents)


def _manifest(tracked: TrackedRun, chosen: Iterable[str], source: str) -> Manifest:
    """Return the store's manifest, with the kind of loss, slices and tensors added."""
    manifest = tracked.manifest
    manifest.source = source
    if kind := loss_kind_of_names(tracked.series):
        manifest.loss_kind = kind
    if have_adversarial_losses(tracked.series):
        manifest.takes_turns = True
    if slices := slices_of(chosen):
        manifest.slices = slices
    if tensors := tracked.layers.tensors():
        manifest.tensors = tensors
    return manifest


def _add_sums(tracked: TrackedRun) -> list[str]:
    """Add sums of loss parts as the loss, for adversarial losses and detectors such as YOLO, and return notes on them."""
    names = list(tracked.series)
    if (adversaries := adversarial_pair(names)) and "train_loss_raw" not in recognise_columns(names):
        return _add_adversaries(tracked, names[adversaries.generator], names[adversaries.discriminator])
    if not any(name.startswith("metrics/") or name in ("lr/pg0", "x/lr0") for name in names):
        return []
    notes = []
    for whole, prefix in (("train/loss", "train/"), ("val/loss", "val/")):
        parts = [names[position] for position in parts_of_loss(names, prefix)]
        series = [tracked.series[part] for part in parts]
        if whole in names or len(series) < 2 or not all(np.array_equal(part.steps, series[0].steps) for part in series):
            continue
        total = np.sum([part.values for part in series], axis=0)
        known = (total != 0) | (prefix == "train/")  # a validation that did not run is logged as zeros
        first = series[0]
        tracked.series[whole] = LoggedSeries(first.steps[known], total[known], first.times[known], first.order[known])
        notes.append(f"{whole} is {' + '.join(parts)}")
    return notes


def _add_adversaries(tracked: TrackedRun, generator: str, discriminator: str) -> list[str]:
    """Add the sum of two adversarial losses, at the steps of both, as the training loss."""
    first, second = tracked.series[generator], tracked.series[discriminator]
    _, first_rows, second_rows = np.intersect1d(first.steps, second.steps, return_indices=True)
    if not len(first_rows) or "train_loss_raw" in tracked.usual:
        return []
    name = f"{generator} + {discriminator}"
    summed = first.values[first_rows] + second.values[second_rows]
    tracked.series[name] = LoggedSeries(first.steps[first_rows], summed, first.times[first_rows], first.order[first_rows])
    tracked.usual = {**tracked.usual, "train_loss_raw": name}
    return [f"{name} compete with each other and need not fall"]


def _chosen(tracked: TrackedRun, mapped: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the series for each catalogue name, and notes on other candidates."""
    decided = {name: foreign for name, foreign in tracked.usual.items() if foreign in tracked.series}
    decided = {name: foreign for name, foreign in decided.items() if foreign not in mapped.values()}
    decided |= {name: foreign for name, foreign in mapped.items() if foreign in tracked.series}
    names = [name for name in tracked.series if name not in decided.values() and name not in tracked.aside]
    chosen, notes = {}, []
    for name, positions in recognise_columns(names).items():
        if name in decided or name in _NO_CURVE:
            continue
        several = [names[position] for position in positions]
        chosen[name] = max(several, key=lambda foreign: len(tracked.series[foreign].steps))
        if len(several) > 1:
            notes.append(note_on_other_choices(name, [other for other in several if other != chosen[name]]))
    of_policy = [names[position] for position in policy_losses(names)]
    for place in broken_losses([recorded_in_full(tracked.series[foreign].values) for foreign in of_policy]):
        if "train_loss_raw" not in decided:
            chosen.setdefault("train_loss_raw", of_policy[place])
    return decided | chosen, notes


def _with_steps(curves: Iterable[tuple[str, LoggedSeries]]) -> tuple[list[tuple[str, LoggedSeries]], list[str]]:
    """Return the curves, with those without steps numbered from 1, and notes on steps."""
    counted, without_steps, negative = [], [], 0
    for name, series in curves:
        negative += int((series.steps < 0).sum())
        if is_all_at_step_zero(series):
            without_steps.append(name)
            counted.append((name, renumbered(series)))
        else:
            counted.append((name, series))
    notes = []
    if without_steps:
        notes.append(f"all points of {list_names(without_steps)} stand at step 0: they were numbered from 1")
    if negative:
        notes.append(f"{negative:,} points stand below step 0 and were left out")
    return counted, notes


def _take_layer(tracked: TrackedRun, name: str) -> bool:
    """Add a series to the layers if it is a statistic of a layer; return whether it was added."""
    series = tracked.series[name]
    return bool(len(series.steps)) and tracked.layers.take_series(name, series.steps, series.values)


def write_config(manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Write the configuration of a run, and the facts in its settings, to its manifest."""
    settings = json_settings(config)
    if not settings:
        return
    manifest.config = settings
    if (seed := step_number(number(config.get("seed")))) is not None:
        manifest.seed = seed
    if not set(config) >= _OF_A_TRAINER:
        return
    manifest.trainer = "huggingface"
    if planned := step_number(number(config["max_steps"])):
        manifest.planned_steps = planned
    if warmup := step_number(number(config.get("warmup_steps"))):
        manifest.warmup_steps = warmup
    clip = number(config["max_grad_norm"])
    if clip is not None and 0 < clip < float("inf"):
        manifest.clip_norm = clip
    if vocabulary := step_number(number(config.get("vocab_size"))):
        manifest.vocabulary = vocabulary


def json_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in a form that can be written: texts truncated, depth limited, the first thousand."""
    first = list(config.items())[:MAX_SETTINGS]
    return {writable(str(name)): _setting(value, MAX_DEPTH) for name, value in first}


def _setting(value: Any, depth: int) -> Any:
    """Return a value in a form that JSON can hold; "..." replaces values that are nested too deeply."""
    if isinstance(value, Mapping | list | tuple) and not depth:
        return "..."
    if isinstance(value, Mapping):
        return {writable(str(name)): _setting(item, depth - 1) for name, item in list(value.items())[:MAX_SETTINGS]}
    if isinstance(value, list | tuple):
        return [_setting(item, depth - 1) for item in value[:MAX_SETTINGS]]
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return writable(str(value))[:MAX_TEXT]


def plain_settings(file: Source | None) -> dict[str, float | str]:
    """Return the settings on plain lines of a YAML file, `NAME: WORD OR NUMBER`, without a YAML library.

    Numbers are converted; lists and nested values are left out.
    """
    if file is None or file.is_folder:
        return {}
    matches = (_PLAIN_LINE.fullmatch(line.rstrip()) for line in file.text.splitlines())
    texts = {match[1]: match[2].strip().strip("'\"") for match in matches if match}
    return {name: text if (value := number(text)) is None else _whole(value) for name, text in texts.items()}


def _whole(value: float) -> float:
    return int(value) if value == value // 1 and abs(value) < 2**53 else value
