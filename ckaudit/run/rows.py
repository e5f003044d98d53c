"""A run made of what another program logged: lines as columns, and checkpoints where it has statistics of layers."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from ckaudit.contract.io.fast_jsonl import LineTable
from ckaudit.contract.schema.checkpoint import VERSION
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.builder import Gatherer
from ckaudit.run.paths import every_path
from ckaudit.run.run import Run
from ckaudit.run.scalars import SessionLogs


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
    """Return the run that lines and checkpoints describe.

    Args:
        name: What the user called it.
        table: The lines.
        documents: Checkpoints, each with a `step` and sections as in a file.
        reads: Paths into the checkpoints that are wanted; default: every number but grids and histograms.
        manifest: What is known of the run as a whole.
        notes: What a reader must know of how it was read.
        logs: Gathers the lines of each session by itself, for who wants them so.
    """
    gatherer = Gatherer(frozenset(every_path() if reads is None else reads))
    for document in documents:
        gatherer.take(msgspec.convert({"schema_version": VERSION, **document}, gatherer.decoder.type, strict=False))
    logs = logs or SessionLogs()
    if len(table.steps):
        logs.add_table(table)
    log, branches = logs.merged()
    return Run(
        name=name,
        manifest=manifest,
        checkpoint_steps=gatherer.steps,
        sections=gatherer.series(),
        scalars=log.series(gatherer.fill),
        texts=log.texts(),
        branches={session: branch.series() for session, branch in branches.items()},
        notes=tuple(notes),
        files=1,
    )
