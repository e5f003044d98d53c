"""A run made of rows that somebody else logged: scalars only, no checkpoints."""

from collections.abc import Iterable, Mapping

from ckaudit.contract.manifest import Manifest
from ckaudit.run.run import Run
from ckaudit.run.scalars import SessionLogs


def run_of_rows(
    name: str, rows: Iterable[Mapping[str, float | str]], *, manifest: Manifest | None = None, notes: Iterable[str] = ()
) -> Run:
    """Return the run that `rows` describe; each has a `step` and any catalogue names."""
    logs = SessionLogs()
    for row in rows:
        logs.add(row)
    log, branches = logs.merged()
    return Run(
        name=name,
        manifest=manifest,
        scalars=log.series(),
        texts=log.texts(),
        branches={session: branch.series() for session, branch in branches.items()},
        notes=tuple(notes),
        files=1,
    )
