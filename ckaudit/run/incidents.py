"""Flags grouped to incidents: what lasts or is strong is one event, what stands alone is noise."""

import numpy as np
from msgspec import Struct

from ckaudit.run.series import Mask


class Incident(Struct, frozen=True):
    """A group of flags.

    Attributes:
        first: Index of the first flag.
        last: Index of the last flag.
        is_incident: Whether it lasts or is strong; otherwise it is isolated.
        is_open: Whether the record ends before the quiet that would close it.
    """

    first: int
    last: int
    is_incident: bool
    is_open: bool


def incidents(flags: Mask, strong: Mask, *, quiet: int, lasting: int = 3, among: int = 5) -> list[Incident]:
    """Group flags that have fewer than `quiet` unflagged points between them.

    Args:
        flags: Points that stand out, shape (T,).
        strong: Flags that are an incident by themselves, shape (T,).
        quiet: Unflagged points that end an incident.
        lasting: Flags among `among` points in a row that make an incident.
        among: See `lasting`.
    """
    index = np.flatnonzero(flags)
    if not len(index):
        return []
    groups = np.split(index, np.flatnonzero(np.diff(index) > quiet) + 1)
    return [_incident(group, strong, len(flags), quiet, lasting, among) for group in groups]


def _incident(group: "np.ndarray", strong: Mask, total: int, quiet: int, lasting: int, among: int) -> Incident:
    dense = bool(len(group) >= lasting and (group[lasting - 1 :] - group[: len(group) - lasting + 1] < among).any())
    first, last = int(group[0]), int(group[-1])
    return Incident(first, last, dense or bool(strong[group].any()), total - 1 - last < quiet)
