"""One run made of two: the first up to a step, and the second, which took it up, from there on."""

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.manifest import Manifest, Session
from ckaudit.run.run import Labels, Run
from ckaudit.run.series import Series


def joined(left: Run, right: Run, seam: int) -> Run:
    """Return the run that `right` makes of `left` by taking it up after step `seam`.

    Its sessions are the last one of `left` and those of `right`.
    """
    before = left.until(seam)
    return replace(
        right,
        manifest=_manifest(left.manifest, right.manifest, seam),
        checkpoint_steps=np.concatenate([before.checkpoint_steps, right.checkpoint_steps[right.checkpoint_steps > seam]]),
        sections={path: _series(before.sections.get(path), part, seam) for path, part in right.sections.items()},
        scalars={name: _series(before.scalars.get(name), part, seam) for name, part in right.scalars.items()},
        texts={name: _labels(before.texts.get(name), part, seam) for name, part in right.texts.items()},
        branches={},
        _derived={},
    )


def _manifest(left: Manifest | None, right: Manifest | None, seam: int) -> Manifest:
    own = right or Manifest(schema_version="ck.run.v1")
    first = (left.sessions or []) if left else []
    second = own.sessions or [Session()]
    sessions = [*(first[-1:] or [Session()]), replace(second[0], resumed_from=seam), *second[1:]]
    return replace(own, sessions=sessions)


def _series(before: Series | None, after: Series, seam: int) -> Series:
    start = int(np.searchsorted(after.steps, seam, side="right"))
    later = replace(after, steps=after.steps[start:], values=after.values[start:], recorded=after.recorded[start:])
    if before is None:
        return later
    labels = tuple(dict.fromkeys((*before.labels, *later.labels)))
    steps = np.concatenate([before.steps, later.steps])
    values, recorded = np.full((len(steps), len(labels)), np.nan), np.zeros((len(steps), len(labels)), bool)
    for part, rows in ((before, slice(0, len(before.steps))), (later, slice(len(before.steps), None))):
        columns = [labels.index(label) for label in part.labels]
        values[rows, columns], recorded[rows, columns] = part.values, part.recorded
    return replace(later, steps=steps, labels=labels, values=values, recorded=recorded)


def _labels(before: Labels | None, after: Labels, seam: int) -> Labels:
    start = sum(step <= seam for step in after.steps)
    steps, values = (before.steps, before.values) if before else ((), ())
    return Labels(after.name, (*steps, *after.steps[start:]), (*values, *after.values[start:]))


def seam_between(right: Run) -> int | None:
    """Return the step after which a run took another one up, by its first session, else by its first line; None: it did not."""
    sessions = (right.manifest.sessions if right.manifest else UNSET) or []
    if sessions and sessions[0].resumed_from is not UNSET:
        return int(sessions[0].resumed_from)
    starts = [int(series.steps[0]) for series in right.scalars.values() if len(series.steps)]
    return min(starts) - 1 if starts and min(starts) > 1 else None
