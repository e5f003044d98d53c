"""LOSS001: the loss jumps out of its own noise."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.spikes import grad_norm_excess, loss_excess, loss_over_median
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.incidents import Incident, incidents
from ckaudit.run.series import Floats, Mask, Series, Steps


@rule("LOSS001", severity="sev1", needs=[train_loss_raw], wants=[loss_excess, loss_over_median, grad_norm_excess], unit="1")
def loss_spike(
    loss: Series, excess: Series | None, relative: Series | None, gradient: Series | None, *, k: float = 6.0, jump: float = 1.5,
    window: int = 50, lead: int = 3, many: int = 3, within: int = 1000, patience: int = 200,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """The loss jumps out of its own noise.

    ## What it checks
    A point is flagged when it exceeds the median of the previous `window` points by `k` robust deviations (F15; a healthy
    124M run has isolated flags at 6). Flags are an incident when three of five points in a row are flagged, when the loss
    is over `jump` times the median, or when the gradient norm was flagged in the `lead` steps before. An incident ends
    after half a window without flags. `many` incidents within `within` steps, or one not back after `patience` steps, is
    sev1; one that recovered is sev2; isolated flags are a note.
    ## Why it matters
    A spike that recovers wastes steps and says that the next one may not (TRI-2, D4.1).
    ## False alarms
    None before a full window. Rounded logs have a floor under their deviation.
    """
    if excess is None or relative is None:
        yield Skip("too_few_points", f"{loss.points} points of the loss; more than {window} are needed")
        return
    flags = np.nan_to_num(excess.values[:, 0], nan=0.0, posinf=np.inf) > k  # (T,)
    strong = flags & (np.nan_to_num(relative.values[:, 0], posinf=np.inf) > jump)
    strong |= flags & _led(excess.steps, gradient, k, lead)
    found = incidents(flags, strong, quiet=window // 2)
    serious = [incident for incident in found if incident.is_incident]
    crowded = _crowded(excess.steps, serious, many, within)
    for incident, close in zip(serious, crowded, strict=True):
        yield _hit(incident, excess.steps, loss.values[:, 0], relative.values[:, 0], close=close, patience=patience)
    if alone := [incident for incident in found if not incident.is_incident]:
        steps = [int(excess.steps[incident.first]) for incident in alone]
        yield Hit(
            severity="note", where="loss", first=steps[0], last=steps[-1], points=len(steps),
            message=f"{len(steps)} isolated points of the loss stand out of its noise and are gone at once",
        )  # fmt: skip


def _led(steps: Steps, gradient: Series | None, k: float, lead: int) -> Mask:
    """Tell of each step whether the gradient norm was flagged in the steps before it."""
    if gradient is None:
        return np.zeros(len(steps), bool)
    flagged = gradient.steps[np.nan_to_num(gradient.values[:, 0], posinf=np.inf) > k]
    before = np.searchsorted(flagged, steps, side="left")
    after = np.searchsorted(flagged, steps - lead, side="left")
    return np.asarray(before > after)


def _crowded(steps: Steps, found: list[Incident], many: int, within: int) -> list[bool]:
    """Tell of each incident whether it is one of `many` within `within` steps."""
    starts = np.array([steps[incident.first] for incident in found])
    return [bool(((starts > start - within) & (starts < start + within)).sum() >= many) for start in starts]


def _hit(incident: Incident, steps: Steps, loss: Floats, relative: Floats, *, close: bool, patience: int) -> Hit:
    first, last = int(steps[incident.first]), int(steps[incident.last])
    inside = slice(incident.first, incident.last + 1)
    peak = incident.first + int(np.argmax(np.where(np.isfinite(loss[inside]), loss[inside], -np.inf)))
    long = last - first >= patience
    tail = (
        "then it is no number any more" if not np.isfinite(loss[incident.last + 1 : incident.last + 2]).all()
        else f"it is not back after {patience} steps" if long
        else "it is one of several" if close
        else "it has not come back yet" if incident.is_open
        else f"it is back after {last - first + 1} steps"
    )  # fmt: skip
    return Hit(
        severity="sev1" if long or close else "sev2", where="loss", first=first, last=last, worst=int(steps[peak]),
        value=float(loss[peak]), limit=float(loss[peak] / relative[peak]), points=incident.last - incident.first + 1,
        message="the loss jumps to {value:.4g} from a median of {limit:.4g}; " + tail,
    )  # fmt: skip
