"""Folders of event files made runs: what writers put beside a run belongs to it.

`add_scalars(main, {key: ...})` makes a folder `<main>_<key>` (PyTorch) or `<main>/<key>` (tensorboardX) for each key, with the
points under `main`; Keras a folder `train` and one `validation`, an Estimator `eval` inside the run; `add_hparams` a folder
named by the time. Every other folder is a run by itself.
"""

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from msgspec import Struct, field

from ckaudit.importers.layers.to_checkpoints import Layers
from ckaudit.importers.names import listed
from ckaudit.importers.trackers.points import Points, Series
from ckaudit.importers.trackers.run_config import kept_settings, tell
from ckaudit.importers.trackers.tracked import Tracked

_SIDES = {"train": "train", "validation": "validation", "val": "validation", "valid": "validation", "eval": "eval"}
_OF_ALGOPERF = "accumulated_submission_time"
_EPOCHS = "epoch_loss"


class EventFolder(Struct):
    """What the event files of one folder hold.

    Attributes:
        folder: Its path below the source; empty: the source itself.
        points: Points by tag.
        layers: Histograms.
        starts: When the writer said that it starts again, and from which step.
        config: Settings.
        model: Settings of the model.
        notes: What could not be read.
    """

    folder: str
    points: Points
    layers: Layers = field(default_factory=Layers)
    starts: list[tuple[float, int]] = field(default_factory=list)
    config: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def take_settings(self, where: str, text: bytes) -> None:
        """Take settings written as one JSON object, those of the model where `where` says so."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(found, dict):
            (self.model if where else self.config).update(found)


def tracked_runs(parts: Sequence[EventFolder]) -> list[Tracked]:
    """Return the runs, each with what lies beside it."""
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


def _home(folder: str, series: dict[str, dict[str, Series]]) -> tuple[str, str | None]:
    """Return the run to which a folder belongs, and what to put before its tags; None: they are only said of the run."""
    parent, _, own = folder.rpartition("/")
    if not folder:
        return "", ""
    tags = series[folder]
    for above, key in _together(folder, tags, series):
        return above, f"{key}/"
    if own in _SIDES and (parent in series or any(other != own and _joined(parent, other) in series for other in _SIDES)):
        return parent, f"{_SIDES[own]}/"
    if parent not in series:
        return folder, ""
    if own.replace(".", "").isdecimal() and all(len(tag.steps) == 1 for tag in tags.values()):
        return parent, None
    return folder, ""


def _together(folder: str, tags: Iterable[str], series: Container[str]) -> Iterator[tuple[str, str]]:
    """Yield the run above whose `add_scalars` made a folder, and the key that it was made for."""
    names = list(tags)
    parts = folder.split("/")
    for depth in range(len(parts) - 1, -1, -1):
        above, own = "/".join(parts[:depth]), "/".join(parts[depth:])
        for before in (f"{names[0]}/", names[0].replace("/", "_") + "_") if len(names) == 1 and above in series else ():
            if own.startswith(before) and len(own) > len(before):
                yield above, own.removeprefix(before)


def _joined(parent: str, name: str) -> str:
    return f"{parent}/{name}" if parent else name


def _tracked(home: str, members: Iterable[tuple[EventFolder, str | None, dict[str, Series]]]) -> Tracked:
    run = Tracked(home, {})
    model: dict[str, Any] = {}
    config: dict[str, Any] = {}
    beside, last = [], 0
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
        last += len(part.points)
    if beside:
        run.notes.append(f"folders beside the run were joined to it, their names before those of their series: {listed(beside)}")
    tell(run.manifest, config)
    if model:
        run.manifest.model = kept_settings(model)
    _know_writers(run)
    return run


def _know_writers(run: Tracked) -> None:
    """Take the names of writers whose words mean something else than elsewhere."""
    if _OF_ALGOPERF in run.series:
        run.aside = {name for name in run.series if name.startswith(("train/", "test/"))}
        run.notes.append("AlgoPerf's train/ and test/ evaluate a part of another split and were left out")
    if f"train/{_EPOCHS}" in run.series or _EPOCHS in run.series:
        _know_keras(run)


def _know_keras(run: Tracked) -> None:
    """Take Keras's names: by update where it logged so, else by epoch, whose steps are epochs then."""
    before = "train/" if f"train/{_EPOCHS}" in run.series else ""
    by_update = f"{before}batch_loss" in run.series
    if by_update:
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
