"""Settings of a training as far as they were recorded: kind of optimizer, planned learning rate, precision, steps of resumes."""

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.run.column_builder import DTYPES
from ckaudit.run.series import Floats, Series, Steps

SINGLE = [DTYPES.index(name) for name in ("float32", "float64")]


def takes_turns(manifest: Manifest | None) -> bool:
    """Tell whether the run is known to give two models their turn, as of a GAN, so that its loss is no measure of progress."""
    return manifest is not None and manifest.takes_turns is True


def is_plain_descent(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to multiply the gradient by the rate alone (`optimizer_adapts` is 0 somewhere)."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 0).any())


def is_adaptive(adapts: Series | None) -> bool:
    """Tell whether the optimizer is known to divide each gradient by its usual size, as Adam does."""
    return adapts is not None and bool((adapts.values[adapts.finite] == 1).any())


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
        pair
        for pair in manifest.planned_learning_rate
        if len(pair) == 2 and all(isinstance(number, float | int) for number in pair)
    ]
    if not pairs:
        return None
    table = np.array(pairs, float)
    return np.asarray(table[np.argsort(table[:, 0], kind="stable")])


def seams(manifest: Manifest | None) -> list[int]:
    """Return the last step before each later session, in order of sessions; one that does not say where it began is left out.

    >>> seams(None)
    []
    """
    return [int(session.resumed_from or 0) for session in resumed(manifest)]


def resumed(manifest: Manifest | None) -> list[Session]:
    """Return the sessions that took the run up again and say from which step, in order."""
    if manifest is None or manifest.sessions is UNSET:
        return []
    return [session for session in manifest.sessions[1:] if session.resumed_from is not UNSET]


def is_scaled(scale: Series | None) -> bool:
    """Tell whether the loss is scaled: a run in single precision logs no scale, or one that is 1 throughout."""
    return scale is not None and bool((scale.values[scale.finite] > 1).any())


def is_single(types: Series | None) -> bool:
    """Tell whether modules computed in single precision: their outputs' types are recorded, and none has less than 32 bits.

    Weights of 32 bits alone do not say it, for autocast computes in half precision from them.
    """
    outputs = types.only(lambda label: label.startswith("activations/")) if types is not None else None
    known = outputs.values[outputs.finite] if outputs is not None else np.empty(0)
    return bool(known.size) and bool(np.isin(known, SINGLE).all())
