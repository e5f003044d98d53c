"""Run: everything recorded of one training run, by any recorder."""

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from msgspec import UNSET, Struct, field
from msgspec.structs import replace
from numpy.typing import NDArray

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import Finding
from ckaudit.run.memory import ResultCache
from ckaudit.run.series import Floats, Series, Steps, empty
from ckaudit.run.tensors import TensorTable, loss_kind_of, table_of

T = TypeVar("T")

REGULAR_AND_IRREGULAR = ("regular", "irregular")
"""The slices that tau compares if none are named (F13)."""

FILE_FACTS = ("file_ok", "file_bytes", "file_time")
"""Facts gained by reading a checkpoint's file; a file that cannot be read does not count as a record of its step."""


class Labels(Struct, frozen=True):
    """A quantity that is a word at each step, such as a hash or a source."""

    name: str
    steps: tuple[int, ...]
    values: tuple[str, ...]


class Grids(Struct, frozen=True, eq=False):
    """Matrices sampled by checkpoints, such as the attention of every head of a layer; all three tuples have the same length.

    Attributes:
        steps: Step of each matrix, rising.
        labels: Tensor or layer of each matrix.
        values: Shape (r, c) or (H, r, c) each.
    """

    steps: tuple[int, ...] = ()
    labels: tuple[str, ...] = ()
    values: tuple[Floats, ...] = ()

    def until(self, step: int) -> "Grids":
        """Return the part that is known at `step`."""
        count = sum(known_step <= step for known_step in self.steps)
        return Grids(self.steps[:count], self.labels[:count], self.values[:count])


class Event(Struct, frozen=True):
    """A checkpoint that an event triggered: its step, the event's step, and the triggers."""

    step: int
    event_step: int
    triggers: tuple[str, ...]


class Run(Struct, frozen=True, eq=False):
    """One run, in memory.

    Attributes:
        name: Name that the user gave.
        manifest: Contents of `run.json`, or facts from an importer; None if there are none.
        checkpoint_steps: Steps with a checkpoint that does not violate the contract, shape (C,).
        sections: Series by checkpoint path, such as "gradients.*.norm".
        scalars: Series by catalogue name; the labels of a name such as "slice_val_loss/regular" are its columns. file_ok,
            file_bytes and file_time hold facts about each checkpoint's file: whether it is readable, its size on disk, and the
            recorded end time of its step.
        texts: Words by catalogue name.
        grids: Sampled matrices by checkpoint path, if they were asked for.
        branches: For each session that a later one replaced, its scalars from there on, which no longer count.
        events: Checkpoints that an event triggered.
        findings: Problems of files that could not be read.
        notes: Notes on how the run was read.
        files: Number of files read.
        tau_slices: The easy and the hard slice named by a policy or the command line; None if neither names them.
        units: Unit in which each share was logged, "percent" or "fraction", if the user named it or its range shows it.
    """

    name: str
    manifest: Manifest | None = None
    checkpoint_steps: Steps = field(default_factory=lambda: np.empty(0, np.int64))
    sections: Mapping[str, Series] = field(default_factory=dict)
    scalars: Mapping[str, Series] = field(default_factory=dict)
    texts: Mapping[str, Labels] = field(default_factory=dict)
    grids: Mapping[str, Grids] = field(default_factory=dict)
    branches: Mapping[int, Mapping[str, Series]] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    tau_slices: tuple[str, str] | None = None
    units: Mapping[str, str] = field(default_factory=dict)
    _derived: ResultCache = field(default_factory=ResultCache)

    def __repr__(self) -> str:
        """Return one line with the run's name, its number of files and checkpoints, and its last step."""
        last = "no step" if self.last_step is None else f"to step {self.last_step}"
        return f"<Run {self.name!a}: {self.files} files, {len(self.checkpoint_steps)} checkpoints, {last}>"

    @property
    def tensors(self) -> TensorTable:
        """Known facts of the parameter tensors."""
        return table_of(self.manifest)

    @property
    def loss_kind(self) -> str:
        """Unit of the loss: "nats_per_token", "other", or "unknown"."""
        return loss_kind_of(self.manifest)

    def shown_unit(self, unit: str) -> str:
        """Return a unit as it applies to this run: "nats/token" becomes "1" unless the loss is known to be over tokens.

        Checkpoints without a run.json count as known, because their contract has no other loss.

        >>> from ckaudit.contract.schema.manifest import Manifest
        >>> Run("run", Manifest(schema_version="ck.run.v1")).shown_unit("nats/token")
        '1'
        """
        is_of_tokens = self.loss_kind == "nats_per_token" or (self.manifest is None and len(self.checkpoint_steps) > 0)
        return unit if is_of_tokens or not unit.startswith("nats/token") else "1"

    @property
    def names_no_slices(self) -> bool:
        """Whether neither the run nor the user names the two slices that tau compares."""
        return self.tau_slices is None and (self.manifest is None or self.manifest.tau_slices is UNSET)

    @property
    def easy_and_hard(self) -> tuple[str, str]:
        """The two slices that tau compares: as the user names them, else run.json, else regular and irregular forms."""
        if self.tau_slices is not None:
            return self.tau_slices
        if self.manifest is not None and self.manifest.tau_slices is not UNSET:
            return self.manifest.tau_slices
        return REGULAR_AND_IRREGULAR

    @property
    def last_step(self) -> int | None:
        """The last step with any record."""
        return self.derived("last_step", self._last_step)

    def _last_step(self) -> int | None:
        everything = (*self.sections.values(), *(scalar for name, scalar in self.scalars.items() if name not in FILE_FACTS))
        ends = [int(series.steps[-1]) for series in everything if len(series.steps)]
        return max([*ends, *map(int, self.checkpoint_steps[-1:])], default=None)

    def series(self, section: str, name: str) -> Series:
        """Return one field of every tensor, layer or probe of a section: shape (C, P)."""
        return self._path(f"{section}.*.{name}")

    def value(self, path: str) -> Series:
        """Return a single value of every checkpoint, such as "optimizer.clip_coefficient": shape (C, 1)."""
        return self._path(path)

    def _path(self, path: str) -> Series:
        series = self.sections.get(path)
        return series if series is not None else empty(path)

    def scalar(self, name: str) -> Series:
        """Return a scalar by its catalogue name: shape (T, P), with one column per label (usually one)."""
        series = self.scalars.get(name)
        return series if series is not None else empty(name)

    def words(self, name: str) -> dict[str, Labels]:
        """Return the words logged under a catalogue name, by label; a name without a label is its own label."""
        parts = ((key, *key.partition("/")) for key in self.texts)
        return {label or family: self.texts[key] for key, family, _, label in parts if family == name}

    def grid(self, section: str, name: str) -> Grids:
        """Return the sampled matrices of every tensor or layer of a section."""
        return self.grids.get(f"{section}.*.{name}", Grids())

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return a result that is computed once per run."""
        return self._derived.get(key, lambda: _computed(make), held=self._arrays)

    def _arrays(self) -> Iterator[NDArray[Any]]:
        """Yield the arrays of all recorded series."""
        for series in (*self.scalars.values(), *self.sections.values()):
            yield from (series.steps, series.values, series.recorded)

    def with_slices(self, tau_slices: tuple[str, str]) -> "Run":
        """Return the same run with other slices for tau."""
        return replace(self, tau_slices=tau_slices, _derived=ResultCache())

    def until(self, step: int) -> "Run":
        """Return the run as it was known at the end of `step`."""
        return replace(
            self,
            checkpoint_steps=self.checkpoint_steps[self.checkpoint_steps <= step],
            sections={path: series.until(step) for path, series in self.sections.items()},
            scalars={name: series.until(step) for name, series in self.scalars.items()},
            texts={name: _labels_until(labels, step) for name, labels in self.texts.items()},
            grids={path: grids.until(step) for path, grids in self.grids.items()},
            events=tuple(event for event in self.events if event.step <= step),
            _derived=ResultCache(),
        )


@ignoring_float_errors
def _computed(make: Callable[[], T]) -> T:
    return make()


def _labels_until(labels: Labels, step: int) -> Labels:
    count = sum(known_step <= step for known_step in labels.steps)
    return Labels(labels.name, labels.steps[:count], labels.values[:count])
