"""A run made of rows that somebody else logged: scalars only, no checkpoints."""

from collections.abc import Iterable

from ckaudit.contract.manifest import Manifest
from ckaudit.run.run import Run
from ckaudit.run.scalars import ScalarLog, merge_sessions


def run_of_rows(
    name: str, rows: Iterable[dict[str, float | str]], *, manifest: Manifest | None = None, notes: Iterable[str] = ()
) -> Run:
    """Return the run that `rows` describe; each has a `step` and any catalogue names."""
    log = ScalarLog()
    for row in merge_sessions(rows):
        log.add(int(row["step"]), row)
    return Run(name=name, manifest=manifest, scalars=log.series(), texts=log.texts(), notes=tuple(notes), files=1)
