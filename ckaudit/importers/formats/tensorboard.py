"""TensorBoard: event files, a single one or folders of them, from any of its writers.

The step is the number that the program passed. A value is a number or a 0-dimensional tensor, and NaN is NaN. A program
that starts again writes a new file into the same folder: the files of a folder are one run, read in the order of their times.
Values logged again from an earlier step on replace the old ones, and a writer may announce this itself (`purge_step`). A
subfolder is a run of its own, except those that writers create for parts of a run. Histograms of the first kind
carry the sums of their values and therefore exact norms; those of the second kind only carry counts.
"""

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Any

from msgspec import Struct, field

from ckaudit.errors import UnreadableError
from ckaudit.importers.importer import Imported, Source
from ckaudit.importers.layers.histogram_moments import ValueSums
from ckaudit.importers.layers.to_checkpoints import LayerStatistics
from ckaudit.importers.names import list_names
from ckaudit.importers.trackers.exported_events import is_exported, read_exported
from ckaudit.importers.trackers.points import NO_TIME, LoggedSeries, PointCollector
from ckaudit.importers.trackers.tfevents import MARK, START, STRING, cells_of, messages, records, scalar_of
from ckaudit.importers.trackers.tracked import TrackedRun, json_settings, runs_of, write_config

NAME = "TensorBoard event files"
GENERIC = False
SEARCHES = True
MAX_FILES = 5000
_MARK_BYTES = 64
_FIRST_BYTES = 1024  # the first event only holds the version
_PART_OF_NAME = "tfevents"  # TensorBoard itself finds its files by this part of their names
_NO_CURVES = {
    b"images",
    b"audio",
    b"graphs",
    b"text",
    b"pr_curves",
    b"mesh",
    b"custom_scalars",
    b"projector",
    b"graph_keras_model",
}
_SETTINGS = {"args/text_summary": "", "model_config/text_summary": "model"}  # written by Hugging Face's Trainer
_SIDES = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "eval": "eval"}
_OF_ALGOPERF = "accumulated_submission_time"
_EPOCHS = "epoch_loss"


class EventFolder(Struct):
    """The contents of the event files in one folder.

    Attributes:
        folder: Its path below the source; empty: the source itself.
        points: Points by tag.
        layers: Histograms.
        starts: Times at which the writer started again, and the step it restarted from.
        config: Settings.
        model: Settings of the model.
        notes: What could not be read.
    """

    folder: str
    points: PointCollector
    layers: LayerStatistics = field(default_factory=LayerStatistics)
    starts: list[tuple[float, int]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take_settings(self, where: str, text: bytes) -> None:
        """Add settings written as one JSON object: to the model's settings if `where` is not empty, else to the run's."""
        try:
            settings = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(settings, dict):
            (self.model if where else self.config).update(settings)


class _Reading(Struct):
    """State of one folder's files while they are read."""

    part: EventFolder
    plugins: dict[bytes, bytes] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)


def detects(source: Source) -> bool:
    """Tell whether a file's first event holds the version, or a folder holds such a file."""
    return next(_files(source), None) is not None if source.is_folder else MARK in source.head[:_MARK_BYTES]


def read(source: Source, columns: Mapping[str, str]) -> list[Imported]:
    """Read all runs: scalars, histograms of layers, and settings where a writer stores them.

    Raises:
        UnreadableError: Where no event can be read, or no run holds a series with a known name.
        UsageError: Where protobuf is missing, or `columns` names something that does not exist.
    """
    messages()
    folders: dict[str, list[Source]] = {}
    for name, file in _files(source) if source.is_folder else [(source.path.name, source)]:
        folders.setdefault(name.rpartition("/")[0], []).append(file)
    ours = [name for name, files in folders.items() if is_exported(files)]
    exported = [read_exported(name, folders.pop(name), columns) for name in ours]
    return exported + _read_foreign(source, folders, columns) if folders else exported


def _read_foreign(source: Source, folders: Mapping[str, list[Source]], columns: Mapping[str, str]) -> list[Imported]:
    """Read the runs that other programs wrote; `folders` has the files of each by folder."""
    tracked = _tracked_runs([_part(name, files) for name, files in folders.items()])
    if sum(map(len, folders.values())) == MAX_FILES:
        tracked[0].notes.append(f"only the first {MAX_FILES:,} event files were read: name the folder of a run")
    if not any(run.series or run.layers for run in tracked):
        raise UnreadableError(
            f"{source.shown} is of TensorBoard, but no event in it holds a number",
            hint="Look whether the writer was closed or flushed.",
        )
    return runs_of(tracked, columns, source.shown, NAME)


def _files(source: Source) -> Iterator[tuple[str, Source]]:
    """Yield the event files in a folder and its subfolders."""
    for name, file in source.files(max_files=MAX_FILES, part_of_name=_PART_OF_NAME):
        if MARK in file.first(_MARK_BYTES):
            yield name, file


def _part(name: str, files: list[Source]) -> EventFolder:
    """Read the files of a folder in the order of their times."""
    reading = _Reading(EventFolder(name, PointCollector()))
    for file in sorted(files, key=lambda file: (_first_time(file), file.path.name)):
        _read_file(reading, file.shown, Source(file.path).data)
    if len(files) > 1:
        reading.part.notes.append(f"{len(files):,} event files in the order of their times: the program was started again")
    for what, count in reading.odd.items():
        reading.part.notes.append(f"{count:,} {what}")
    return reading.part


def _first_time(file: Source) -> float:
    data = file.first(_FIRST_BYTES)
    for start, end in records(data).events[:1]:
        if (event := _parsed("Event", data[start:end])) is not None and isfinite(event.wall_time):
            return float(event.wall_time)
    return 0.0


def _parsed(name: str, data: bytes) -> Any:
    """Return a message, or None where the bytes are not one."""
    kind = messages()[name]
    from google.protobuf.message import DecodeError

    try:
        return kind.FromString(data)
    except DecodeError:
        return None


def _read_file(reading: _Reading, shown: str, data: bytes) -> None:
    parse = messages()["Event"].FromString
    from google.protobuf.message import DecodeError

    framed = records(data)
    if framed.torn:
        reading.part.notes.append(f"{shown} ends in the middle of an event: {framed.torn:,} bytes at its end were left out")
    _count(reading, "events with a wrong checksum were left out", framed.broken)
    slots: dict[bytes, int] = {}
    put_slot, put_step, put_value, put_time = reading.part.points.appends()
    clock = 0.0
    for start, end in framed.events:
        try:
            event = parse(data[start:end])
        except DecodeError:
            _count(reading, "events that cannot be decoded were left out", 1)
            continue
        if clock < (time := event.wall_time) < inf:
            clock = time
        moment = clock if time else NO_TIME
        step = event.step
        for value in event.summary.value:
            if value.HasField("simple_value"):
                put_slot(slots[value.tag] if value.tag in slots else _slot(reading, slots, value))
                put_step(step)
                put_value(value.simple_value)
                put_time(moment)
            else:
                _take(reading, step, value, moment)
        if event.HasField("session_log") and event.session_log.status == START:
            reading.part.starts.append((clock, step))


def _slot(reading: _Reading, slots: dict[bytes, int], value: Any) -> int:
    return slots.setdefault(value.tag, reading.part.points.slot(_name(reading, value)))


def _name(reading: _Reading, value: Any) -> str:
    tag = value.tag or value.node_name
    return reading.names.get(tag) or reading.names.setdefault(tag, tag.decode("utf-8", errors="replace"))


def _count(reading: _Reading, what: str, number: int) -> None:
    if number:
        reading.odd[what] = reading.odd.get(what, 0) + number


def _take(reading: _Reading, step: int, value: Any, clock: float) -> None:
    """Add a value that is not stored as a plain number."""
    tag, name = value.tag or value.node_name, _name(reading, value)
    if value.HasField("metadata"):
        plugin = value.metadata.plugin_data
        reading.plugins.setdefault(tag, plugin.plugin_name)
        if plugin.plugin_name == b"hparams":
            _take_hparams(reading, plugin.content)
    if value.HasField("histo"):
        _take_histogram(reading.part.layers, step, name, value.histo)
    elif value.HasField("tensor") and value.tensor.dtype == STRING:
        if name in _SETTINGS and value.tensor.string_val:
            reading.part.take_settings(_SETTINGS[name], value.tensor.string_val[0])
    elif value.HasField("tensor") and reading.plugins.get(tag) not in _NO_CURVES:
        _take_tensor(reading, step, name, value.tensor, clock)


def _take_tensor(reading: _Reading, step: int, name: str, tensor: Any, clock: float) -> None:
    number = scalar_of(tensor)
    if number is not None:
        reading.part.points.add(name, step, number, clock)
        return
    cells = cells_of(tensor)
    if cells is None or cells.ndim != 2 or cells.shape[1] != 3 or not len(cells):
        _count(reading, "tensors are neither numbers nor histograms and were left out", 1)
        return
    edges = [*cells[:, 0].tolist(), float(cells[-1, 1])]
    reading.part.layers.take_histogram(step, name.removesuffix("/histogram_summary"), edges, cells[:, 2].tolist())


def _take_histogram(layers: LayerStatistics, step: int, name: str, histo: Any) -> None:
    """Add a histogram that has only the right edge of each bin; its outer edges are the smallest and the largest value."""
    limits, counts = list(histo.bucket_limit), list(histo.bucket)
    if len(limits) != len(counts):
        limits, counts = [], []
    filled = [index for index, count in enumerate(counts) if count]
    edges: list[float] = []
    if filled:
        first, last = filled[0], filled[-1]
        left = max(histo.min, limits[first - 1]) if first else histo.min
        edges = [min(left, limits[first]), *limits[first : last + 1]]
        edges[-1] = max(min(edges[-1], histo.max), edges[-2])
        counts = counts[first : last + 1]
    layers.take_histogram(step, name, edges, counts, ValueSums(histo.num, histo.sum, histo.sum_squares, histo.min, histo.max))


def _take_hparams(reading: _Reading, content: bytes) -> None:
    message = _parsed("Hparams", content)
    for hparam in message.session_start_info.hparams if message is not None else ():
        setting = hparam.value
        known = [kind for kind in ("number_value", "string_value", "bool_value") if setting.HasField(kind)]
        if known:
            value = getattr(setting, known[0])
            text = value.decode("utf-8", errors="replace") if isinstance(value, bytes) else value
            reading.part.config[hparam.key.decode("utf-8", errors="replace")] = text


# Some folders belong to a run. `add_scalars(main, {key: ...})` makes a folder `<main>_<key>` (PyTorch) or `<main>/<key>`
# (tensorboardX) for each key, with the points under `main`. Keras makes a folder `train` and a folder `validation`, an
# Estimator `eval` inside the run, `add_hparams` a folder named by the time. Any other folder is a run of its own.
def _tracked_runs(parts: Sequence[EventFolder]) -> list[TrackedRun]:
    """Return the runs, each joined with the folders that belong to it."""
    by_folder = {part.folder: part for part in parts}
    series = {part.folder: part.points.series(by_time=True) for part in parts}
    homes = {folder: _home(folder, series) for folder in by_folder}
    runs: dict[str, list[str]] = {}
    for folder, (home, _) in homes.items():
        runs.setdefault(home, []).append(folder)
    return [
        _tracked(home, [(by_folder[folder], homes[folder][1], series[folder]) for folder in folders])
        for home, folders in runs.items()
    ]


def _home(folder: str, series: dict[str, dict[str, LoggedSeries]]) -> tuple[str, str | None]:
    """Return the run that a folder belongs to, and the prefix of its tags; None: its tags are not series of the run."""
    parent, _, name = folder.rpartition("/")
    if not folder:
        return "", ""
    tags = series[folder]
    for above, key in _together(folder, tags, series):
        return above, f"{key}/"
    if name in _SIDES and (parent in series or any(other != name and _joined(parent, other) in series for other in _SIDES)):
        return parent, f"{_SIDES[name]}/"
    if parent not in series:
        return folder, ""
    if name.replace(".", "").isdecimal() and all(len(tag.steps) == 1 for tag in tags.values()):
        return parent, None
    return folder, ""


def _together(folder: str, tags: Iterable[str], series: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the run whose `add_scalars` created a folder, and the key of that folder."""
    names = list(tags)
    parts = folder.split("/")
    for depth in range(len(parts) - 1, -1, -1):
        above, below = "/".join(parts[:depth]), "/".join(parts[depth:])
        for before in (f"{names[0]}/", names[0].replace("/", "_") + "_") if len(names) == 1 and above in series else ():
            if below.startswith(before) and len(below) > len(before):
                yield above, below.removeprefix(before)


def _joined(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


def _tracked(home: str, members: Iterable[tuple[EventFolder, str | None, dict[str, LoggedSeries]]]) -> TrackedRun:
    run = TrackedRun(home, {})
    model: dict[str, Any] = {}
    config: dict[str, Any] = {}
    beside = []
    for part, before, series in members:
        config |= part.config
        model |= part.model
        run.notes += part.notes
        if before is None:
            continue
        if part.folder != home:
            beside.append(part.folder.rpartition("/")[2])
        run.layers = part.layers if part.layers or not run.layers else run.layers
        run.starts += part.starts
        run.series |= {before + tag: points for tag, points in series.items()}
    if beside:
        run.notes.append(
            f"folders beside the run were joined to it, their names before those of their series: {list_names(beside)}"
        )
    write_config(run.manifest, config)
    if model:
        run.manifest.model = json_settings(model)
    _know_writers(run)
    return run


def _know_writers(run: TrackedRun) -> None:
    """Set the meaning of names that some writers use differently from others."""
    if _OF_ALGOPERF in run.series:
        run.aside = {name for name in run.series if name.startswith(("train/", "test/"))}
        run.notes.append("AlgoPerf's train/ and test/ evaluate a part of another split and were left out")
    if f"train/{_EPOCHS}" in run.series or _EPOCHS in run.series:
        # Keras's names: those by update if it logged by update, else those by epoch, whose steps are epochs.
        before = "train/" if f"train/{_EPOCHS}" in run.series else ""
        if f"{before}batch_loss" in run.series:
            run.usual = {"train_loss_raw": f"{before}batch_loss", "val_loss": "validation/evaluation_loss_vs_iterations"}
            run.aside = {name for name in run.series if "epoch_" in name}
            return
        run.usual = {
            "train_loss_raw": f"{before}{_EPOCHS}",
            "val_loss": f"validation/{_EPOCHS}",
            "learning_rate": f"{before}epoch_learning_rate",
        }
        run.aside = {"validation/evaluation_loss_vs_iterations"}
        run.notes.append("Keras counted epochs, not updates: a step here is an epoch; update_freq='batch' logs by update")
