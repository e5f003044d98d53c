"""Series of a tracker's store turned to runs: catalogue names, statistics of layers, and what was left out, said aloud."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported
from ckaudit.importers.layers.to_checkpoints import Layers
from ckaudit.importers.names import (
    catalogue_name,
    could_be,
    left_out,
    listed,
    loss_kind_of_names,
    recognised,
    resolved,
    slices_of,
    taken,
    writable,
)
from ckaudit.importers.tables.merge import merge_notes
from ckaudit.importers.tables.numbers import number, step_number
from ckaudit.importers.trackers.points import Series, joined, renumbered, stands_still

_NO_CURVE = ("step", "time")
_NO_LAYERS = "no statistics of single tensors were logged: weights, gradients, activations, attention"
_OF_A_TRAINER = {"per_device_train_batch_size", "max_grad_norm", "max_steps"}  # only Hugging Face's arguments have all three
MAX_SETTINGS = 1000
MAX_DEPTH = 8
MAX_TEXT = 2000


class Tracked(Struct):
    """One run as its store holds it.

    Attributes:
        name: Its name among several.
        series: Points by the store's own names.
        notes: What was done to read it.
        layers: Histograms that were taken already.
        starts: When the run was started again, and the first step that is logged anew then.
        usual: Names that this writer uses, by catalogue name, before common ones are looked for.
        aside: Names that mean something else than they usually do.
        manifest: What the store knows of the run as a whole.
    """

    name: str
    series: dict[str, Series]
    notes: list[str] = field(default_factory=list)
    layers: Layers = field(default_factory=Layers)
    starts: list[tuple[float, int]] = field(default_factory=list)
    usual: Mapping[str, str] = field(default_factory=dict)
    aside: set[str] = field(default_factory=set)
    manifest: Manifest = field(default_factory=lambda: Manifest(schema_version="ck.run.v1"))


def runs_of(runs: Sequence[Tracked], columns: Mapping[str, str], shown: str, source: str) -> list[Imported]:
    """Return the runs that hold something, those without anything named in a note.

    Args:
        runs: Every run of the source.
        columns: The store's own names that the user mapped, by catalogue name.
        shown: The source's name in messages.
        source: The format.

    Raises:
        UnreadableError: Where no run holds a series whose name is known.
        UsageError: Where `columns` names what is not there, or the step, which every point has.
    """
    names = list(dict.fromkeys(name for tracked in runs for name in tracked.series))
    mapped = {name: names[position] for name, position in resolved(columns, names).items()}
    if "step" in mapped or "time" in mapped:
        raise UsageError(f"every point of {source} has its own step and time", hint="Map values only, as in --map loss=NAME.")
    made = [(tracked, _imported(tracked, mapped, source)) for tracked in runs]
    imported = [run for _, run in made if run is not None]
    empty = [each.name or "(no name)" for each, run in made if run is None]
    if not imported:
        raise _nothing(names, shown, source)
    if not empty:
        return imported
    note = f"{len(empty):,} more runs hold no series that is known and were left out: {listed(empty)}"
    return [_with_note(run, note) for run in imported]


def _nothing(names: Sequence[str], shown: str, source: str) -> UnreadableError:
    if not names:
        return UnreadableError(f"{shown} is {source}, but no number was logged to it", hint="Look whether the job got that far.")
    return UnreadableError(
        f"{shown} is {source}, but none of its series has a name that is known: {listed(names)}",
        hint="Name them, as in --map loss=NAME.",
    )


def _with_note(run: Imported, note: str) -> Imported:
    return Imported(run.table, run.manifest, (*run.notes, note), run.source, run.name, run.documents)


def _imported(tracked: Tracked, mapped: Mapping[str, str], source: str) -> Imported | None:
    """Return a run, None where nothing in it is known."""
    chosen, notes = _chosen(tracked, mapped)
    curves, said = _with_steps([(name, tracked.series[foreign]) for name, foreign in chosen.items()])
    merged = joined(curves, tracked.starts)
    rest = [name for name in tracked.series if name not in chosen.values() and catalogue_name(name) not in _NO_CURVE]
    left = [name for name in rest if name not in tracked.aside and not _take_layer(tracked, name)]
    documents = tracked.layers.documents()
    if not len(merged.table.steps) and not len(documents):
        return None
    points = sum(len(series.steps) for series in tracked.series.values())
    notes = [
        f"read as {source}: {points:,} points of {len(tracked.series):,} series",
        *taken(chosen),
        *notes,
        *said,
        *left_out(left),
        *tracked.notes,
        *merge_notes(merged),
        *tracked.layers.notes(),
        *([] if len(documents) else [_NO_LAYERS]),
    ]
    return Imported(merged.table, _manifest(tracked, chosen, source), tuple(notes), source, tracked.name, documents)


def _manifest(tracked: Tracked, chosen: Iterable[str], source: str) -> Manifest:
    """Return what the store knows of the run, with its slices and tensors."""
    manifest = tracked.manifest
    manifest.source = source
    if kind := loss_kind_of_names(tracked.series):
        manifest.loss_kind = kind
    if slices := slices_of(chosen):
        manifest.slices = slices
    if tensors := tracked.layers.tensors():
        manifest.tensors = tensors
    return manifest


def _chosen(tracked: Tracked, mapped: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Return the series of each catalogue name, and say where another one could have been meant."""
    own = {name: foreign for name, foreign in tracked.usual.items() if foreign in tracked.series}
    own = {name: foreign for name, foreign in own.items() if foreign not in mapped.values()}
    own |= {name: foreign for name, foreign in mapped.items() if foreign in tracked.series}
    names = [name for name in tracked.series if name not in own.values() and name not in tracked.aside]
    chosen, notes = {}, []
    for name, positions in recognised(names).items():
        if name in own or name in _NO_CURVE:
            continue
        several = [names[position] for position in positions]
        chosen[name] = max(several, key=lambda foreign: len(tracked.series[foreign].steps))
        if len(several) > 1:
            others = [each for each in several if each != chosen[name]]
            notes.append(could_be(name, others))
    return own | chosen, notes


def _with_steps(curves: Iterable[tuple[str, Series]]) -> tuple[list[tuple[str, Series]], list[str]]:
    """Return curves whose points have steps, and say where they had none."""
    counted, stood, negative = [], [], 0
    for name, series in curves:
        negative += int((series.steps < 0).sum())
        if stands_still(series):
            stood.append(name)
            counted.append((name, renumbered(series)))
        else:
            counted.append((name, series))
    notes = [f"all points of {listed(stood)} stand at step 0: they were numbered from 1"] if stood else []
    if negative:
        notes.append(f"{negative:,} points stand below step 0 and were left out")
    return counted, notes


def _take_layer(tracked: Tracked, name: str) -> bool:
    """Tell whether a series is a statistic of a layer, and take it then."""
    series = tracked.series[name]
    return bool(len(series.steps)) and tracked.layers.take_series(name, series.steps, series.values)


def named(runs: Sequence[Tracked]) -> None:
    """Give runs of one name a number; a single run needs none."""
    counts = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    for run in runs:
        seen[run.name] += 1
        if counts[run.name] > 1:
            run.name = f"{run.name} ({seen[run.name]})"


def tell(manifest: Manifest, config: Mapping[str, Any]) -> None:
    """Put a configuration into a manifest, and what it says of the run as a whole."""
    kept = kept_settings(config)
    if not kept:
        return
    manifest.config = kept
    if (seed := step_number(number(config.get("seed")))) is not None:
        manifest.seed = seed
    if not set(config) >= _OF_A_TRAINER:
        return
    manifest.trainer = "huggingface"
    if planned := step_number(number(config["max_steps"])):
        manifest.planned_steps = planned
    if warmup := step_number(number(config.get("warmup_steps"))):
        manifest.warmup_steps = warmup
    if clip := _positive(config["max_grad_norm"]):
        manifest.clip_norm = clip
    if vocabulary := step_number(number(config.get("vocab_size"))):
        manifest.vocabulary = vocabulary


def kept_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that can be written: texts cut, nothing too deep, the first thousand."""
    first = list(config.items())[:MAX_SETTINGS]
    return {writable(str(name)): _kept(value, MAX_DEPTH) for name, value in first}


def _kept(value: Any, depth: int) -> Any:
    if isinstance(value, Mapping):
        return (
            {writable(str(name)): _kept(each, depth - 1) for name, each in list(value.items())[:MAX_SETTINGS]} if depth else "..."
        )
    if isinstance(value, list | tuple):
        return [_kept(each, depth - 1) for each in value[:MAX_SETTINGS]] if depth else "..."
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    return writable(str(value))[:MAX_TEXT]


def _positive(value: Any) -> float | None:
    read = number(value)
    return read if read is not None and 0 < read < float("inf") else None
