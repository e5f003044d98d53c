"""The learning rate that was planned, as run.json tells."""

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.run.series import Floats, Steps


def planned_rate(manifest: Manifest | None, steps: Steps) -> Floats | None:
    """Return the planned learning rate at `steps`, linear between those named, shape (T,); None where there is no plan.

    Before the first and after the last step named it is theirs.
    """
    pairs = _pairs(manifest)
    return None if pairs is None else np.interp(steps, pairs[:, 0], pairs[:, 1])


def planned_range(manifest: Manifest | None, steps: Steps) -> tuple[Floats, Floats] | None:
    """Return the lower and the higher of the two planned rates around each step, shape (T,); None where there is no plan."""
    pairs = _pairs(manifest)
    if pairs is None:
        return None
    after = np.clip(np.searchsorted(pairs[:, 0], steps, side="left"), 0, len(pairs) - 1)
    before = np.clip(np.searchsorted(pairs[:, 0], steps, side="right") - 1, 0, len(pairs) - 1)
    ends = np.stack([pairs[before, 1], pairs[after, 1]])
    return ends.min(axis=0), ends.max(axis=0)


def _pairs(manifest: Manifest | None) -> Floats | None:
    if manifest is None or manifest.planned_learning_rate is UNSET:
        return None
    pairs = [
        pair for pair in manifest.planned_learning_rate if len(pair) == 2 and all(isinstance(each, float | int) for each in pair)
    ]
    if not pairs:
        return None
    table = np.array(pairs, float)
    return np.asarray(table[np.argsort(table[:, 0], kind="stable")])
