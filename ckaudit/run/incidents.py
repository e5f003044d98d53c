"""Flags grouped to incidents: what lasts or is strong is one event, what stands alone is noise."""

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.run.series import Floats, Mask


class Incident(Struct, frozen=True):
    """A group of flags.

    Attributes:
        first: Index of the first flag.
        last: Index of the last flag.
        is_incident: Whether it lasts or is strong; otherwise it is isolated.
        is_open: Whether the record ends before the quiet that would close it.
        core: Indexes of the flags that make it last or strong; none where it is isolated.
        lasts: Whether some of them are close to each other; strong ones alone need not be.
    """

    first: int
    last: int
    is_incident: bool
    is_open: bool
    core: tuple[int, ...] = ()
    lasts: bool = False


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
    core = strong[group]
    near = np.flatnonzero(group[lasting - 1 :] - group[: max(0, len(group) - lasting + 1)] < among)
    core[(near[:, None] + np.arange(lasting)).reshape(-1)] = True
    first, last = int(group[0]), int(group[-1])
    return Incident(first, last, bool(core.any()), total - 1 - last < quiet, tuple(group[core].tolist()), bool(len(near)))


def as_one_of_many(
    incident: Incident,
    excess: Floats,
    flags: Mask,
    *,
    beyond: float,
    points: int,
    later: int = 0,
    usual: float = 98.0,
    among: int = 5,
) -> Incident:
    """Return an incident as an isolated one where the points around it, each for itself, often stand out about as far.

    Args:
        incident: An event of these points.
        excess: How far each point stands above those before it, over their spread, shape (T,).
        flags: Points that stand out; three of `among` in a row belong to an event, and not to the noise, as does the highest
            point of those that make the incident one; so do those around them.
        beyond: The event must stand out so many times as far as the `usual` percentile of the noise.
        points: How many points before the event tell the noise, together with those inside it.
        later: How many points after it do.
        usual: Percentile of the noise that is compared.
        among: See `flags`.
    """
    if not incident.is_incident:
        return incident
    peak = max(incident.core, key=lambda place: np.nan_to_num(excess[place], nan=-np.inf, posinf=np.inf))
    window = slice(max(0, incident.first - points), incident.last + 1 + later)
    part = flags[window] & (np.convolve(flags[window], np.ones(among), "same") >= 3)
    part[peak - window.start] = True
    events = np.convolve(part, np.ones(2 * among + 1), "same") > 0
    noise = excess[window][~events & np.isfinite(excess[window])]
    if len(noise) < among or excess[peak] >= beyond * np.percentile(noise, usual):
        return incident
    return replace(incident, is_incident=False)
