"""Builds a run from checkpoints, one document at a time, or from the table of an importer."""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, TypeVar, get_args

import msgspec
import numpy as np
from msgspec import UNSET

from ckaudit.contract.io.columns import Column, columns_of
from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.schema.checkpoint import VERSION, Trigger
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.column_builder import (
    GRIDS,
    GROUPS,
    NAMES,
    WEIGHT_SAMPLES,
    ColumnCollector,
    GridCollector,
    cells_of,
    decoder,
    every_path,
    flatten_lists,
)
from ckaudit.run.line_budget import TensorBudget
from ckaudit.run.memory import column_budget
from ckaudit.run.run import Event, Grids, Run
from ckaudit.run.scalars import ScalarColumns, SessionLogs
from ckaudit.run.series import Series, Steps, merged_steps

T = TypeVar("T")

TRIGGERS = frozenset(get_args(Trigger))

CHECK_EVERY = 32  # checkpoints

CHECK_FROM = 2**22  # bytes of columns that fit on any machine


class RunBuilder:
    """Gathers the wanted paths over all checkpoints.

    Attributes:
        fill: Scalars that checkpoints hold.
        stride: Every how many checkpoints weight samples are read.
    """

    def __init__(self, paths: frozenset[str]) -> None:
        """Begin without any checkpoint."""
        self.fill = ScalarColumns()
        self.stride = 1
        self._paths, self._paths_without_samples = paths, paths - WEIGHT_SAMPLES
        self._since_samples: int | None = None
        self._collectors = {path: ColumnCollector(path) for path in sorted(paths) if path not in ("loss", "scalars.*", *GRIDS)}
        self._grids = {path: GridCollector() for path in GRIDS if path in paths}
        self._sections, self._grids_of = _by_section(self._collectors), _by_section(self._grids)
        for section in self._grids_of:
            self._sections.setdefault(section, [])
        self._names: dict[str, tuple[str, ...]] = {}
        self._steps: list[int] = []
        self._events: list[Event] = []
        self._boxed: set[tuple[str, int]] = set()
        self._odd_triggers: dict[str, list[int]] = {}
        self._budget = TensorBudget()

    @property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decoder of the next checkpoint, which keeps only the wanted paths."""
        is_due = self._since_samples is None or self._since_samples + 1 >= self.stride
        return decoder(self._paths if is_due else self._paths_without_samples)

    @property
    def wants_rank_facts(self) -> bool:
        """Whether any wanted path is stored in the per-rank files."""
        return "rank_facts" in self._sections

    @property
    def steps(self) -> Steps:
        """Steps of the checkpoints, sorted and without duplicates."""
        return merged_steps(np.array(self._steps, np.int64))

    @property
    def notes(self) -> list[str]:
        """Notes on triggers that the contract does not know, and on tensors that were left out."""
        return [
            f'trigger "{word[:60]}" is no word of ck.analysis.v1: it stands in {len(steps)} '
            f"checkpoint{'s' if len(steps) > 1 else ''} since step {min(steps)}, and is read as an event"
            for word, steps in islice(self._odd_triggers.items(), 3)
        ] + self._budget.notes

    @property
    def events(self) -> tuple[Event, ...]:
        """Events that triggered checkpoints, sorted by step."""
        return tuple(sorted(self._events, key=lambda event: event.step))

    def series(self) -> dict[str, Series]:
        """Return the gathered series by path."""
        return {path: collector.series("1") for path, collector in self._collectors.items()}

    def grids(self) -> dict[str, Grids]:
        """Return the sampled matrices by path."""
        return {path: collector.grids() for path, collector in self._grids.items()}

    def take(self, document: Any) -> None:
        """Add one checkpoint, decoded by `decoder`."""
        step = document.step
        self._steps.append(step)
        self._fill(step, document)
        if self._since_samples is not None:
            self._since_samples += 1
        for word in document.triggers or ():
            if word not in TRIGGERS:
                self._odd_triggers.setdefault(word, []).append(step)
        if document.event_step is not UNSET:
            self._events.append(Event(step, document.event_step, tuple(document.triggers or ())))
        for section, members in self._sections.items():
            part = getattr(document, section, UNSET)
            if part is UNSET or section == "rank_facts":
                continue
            if section == "history":
                self._open_box(part, members)
            elif isinstance(part, dict):
                columns = self._collect_tensors(step, section, self._budget.fitting(section, part), members)
                if section == "weights" and any(path.rpartition(".")[2] in columns for path in WEIGHT_SAMPLES):
                    self._since_samples = 0
                # Measured weight deltas make weight grids unnecessary.
                if section != "weights" or getattr(document, "weight_deltas", UNSET) is UNSET:
                    self._collect_grids(step, section, columns)
            else:
                self._collect_fields(step, part, members)
        if len(self._steps) % CHECK_EVERY == 0:
            self._fit_memory()

    def _fit_memory(self) -> None:
        """Move the columns to disk if they exceed the memory budget."""
        size = sum(collector.size for collector in self._collectors.values())
        if size > CHECK_FROM and size > column_budget():
            for collector in self._collectors.values():
                collector.move_to_disk()

    def take_ranks(self, step: int, ranks: dict[str, Any]) -> None:
        """Add the facts of all ranks at one step as one row."""
        for rest, collector in self._sections.get("rank_facts", []):
            collector.add(step, tuple(ranks), [getattr(rank, rest) for rank in ranks.values()])

    def _collect_tensors(
        self, step: int, section: str, part: dict[str, Any], members: list[tuple[str, ColumnCollector]]
    ) -> dict[str, Column]:
        """Collect one row of each field of a section with an entry per tensor or layer; return the section's columns."""
        names, columns = tuple(part), columns_of(part)
        # Each file brings new name objects. One comparison per section lets all columns share the same tuple.
        if names == self._names.get(section):
            names = self._names[section]
        self._names[section] = names
        for field, collector in members:
            if field in columns or collector.path not in WEIGHT_SAMPLES:
                collector.add(step, *cells_of(names, columns, field))
        return columns

    def _collect_grids(self, step: int, section: str, columns: dict[str, Column]) -> None:
        """Collect the matrices of a section."""
        for field, collector in self._grids_of.get(section, []):
            if field in columns:
                collector.add(step, self._names[section], columns[field])

    def _collect_fields(self, step: int, part: Any, members: list[tuple[str, ColumnCollector]]) -> None:
        """Collect the fields of a section without entries, or of the document itself."""
        for rest, collector in members:
            value = getattr(part, rest) if rest else part
            if collector.path in NAMES and isinstance(value, list):
                collector.add(step, (collector.path, *value), (len(value), *[1] * len(value)))
            elif collector.path == GROUPS and isinstance(value, list):
                names = [GROUPS] if len(value) == 1 else [f"group{place}" for place in range(len(value))]
                collector.add(step, tuple(names), [group.learning_rate for group in value])
            elif isinstance(value, list):
                collector.add(step, *flatten_lists((collector.path,), [value], "bucket"))
            else:
                collector.add(step, (collector.path,), (value,))

    def _open_box(self, box: Any, members: list[tuple[str, ColumnCollector]]) -> None:
        """Collect a row for each step of a black box; where boxes overlap, the first one counts."""
        for rest, collector in members:
            columns = getattr(box, rest.removesuffix(".*")) or {}
            names = tuple(columns)
            for step, *row in zip(box.steps, *columns.values(), strict=False):
                if (rest, step) not in self._boxed:
                    self._boxed.add((rest, step))
                    collector.add(step, names, row)

    def _fill(self, step: int, document: Any) -> None:
        if document.scalars is not UNSET:
            self.fill.add(step, document.scalars)
        if document.loss is not UNSET:
            self.fill.add(step, {"train_loss_raw": document.loss})


def _by_section(collectors: Mapping[str, T]) -> dict[str, list[tuple[str, T]]]:
    """Return the wanted fields of each section, with their collectors."""
    sections: dict[str, list[tuple[str, T]]] = {}
    for path, collector in collectors.items():
        section, _, rest = path.partition(".")
        sections.setdefault(section, []).append((rest.removeprefix("*."), collector))
    return sections


def run_of_table(
    name: str,
    table: LineTable,
    *,
    documents: Iterable[Mapping[str, Any]] = (),
    reads: Iterable[str] | None = None,
    manifest: Manifest | None = None,
    notes: Iterable[str] = (),
    logs: SessionLogs | None = None,
) -> Run:
    """Return the run that a table of log lines and checkpoints describes.

    Args:
        name: Name of the run, as the user wrote it.
        table: The log lines.
        documents: Checkpoints, each with a `step` and sections as in a file.
        reads: Wanted paths into the checkpoints; default: every number but grids and histograms.
        manifest: What is known of the run as a whole.
        notes: Notes on how the run was read.
        logs: Gathers the lines of each session separately, for callers that need them.
    """
    builder = RunBuilder(frozenset(every_path() if reads is None else reads))
    for document in documents:
        builder.take(msgspec.convert({"schema_version": VERSION, **document}, builder.decoder.type, strict=False))
    logs = logs or SessionLogs()
    if len(table.steps):
        logs.add_table(table)
    log, branches = logs.merged()
    return Run(
        name=name,
        manifest=manifest,
        checkpoint_steps=builder.steps,
        sections=builder.series(),
        scalars=log.series(builder.fill),
        texts=log.texts(),
        branches={session: branch.series() for session, branch in branches.items()},
        notes=tuple(notes),
        files=1,
    )
