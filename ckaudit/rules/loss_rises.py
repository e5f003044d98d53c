"""LOSS004: the loss climbs steadily."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Floats, Series, Steps


@rule("LOSS004", severity="sev1", needs=[train_loss_raw], unit="nats/token")
def loss_rises(
    loss: Series, *, blocks: int = 40, least: int = 10, climbs: int = 4, rise: float = 0.1, mads: float = 6.0,
    far: float = 0.3, at_once: float = 0.5,
) -> Iterator[Hit | Skip]:  # fmt: skip
    """The loss climbs steadily.

    ## What it checks
    The medians of the loss over `blocks` blocks of equal length, of `least` points at least. Where `climbs` of them in a
    row each lie above the one before, and the rise is more than `rise` of where it began and more than `mads` robust
    deviations of such medians, the loss climbs: sev1 where it has not given back half of it at the end (D4.1: no
    recovery), else sev2. In a log of three to ten points it is sev2 where the loss stands `at_once`
    above all before it, or has come `far` above them without a step back.
    ## Why it matters
    A spike comes from a batch; a climb comes from the training itself, and goes on until somebody stops it.
    ## False alarms
    Noise of four medians rises in a row once in 120 blocks, but not by a tenth. After a restart of the learning rate the
    loss jumps and falls, it does not climb.
    """
    known = np.flatnonzero(loss.finite[:, 0])
    width = max(least, len(known) // blocks)
    count = len(known) // width
    if count <= climbs:
        short = _in_few_lines(loss.steps[known], loss.values[known, 0], far, at_once)
        yield short or Skip("too_few_points", f"{len(known)} points of the loss; {(climbs + 1) * width} are needed")
        return
    rows = known[len(known) - count * width :].reshape(count, width)
    table = loss.values[rows, 0]  # (B, W)
    middle = np.median(table, axis=1)
    noise = 1.4826 * float(np.median(np.abs(table - middle[:, None]))) * 1.25 / np.sqrt(width)
    for start, end in _climbs(middle, climbs):
        risen = middle[end] - middle[start]
        if risen <= max(rise * abs(middle[start]), mads * noise):
            continue
        stays = middle[-1] > middle[start] + risen / 2
        yield Hit(
            severity="sev1" if stays else "sev2", where="loss", first=int(loss.steps[rows[start + 1, 0]]),
            last=int(loss.steps[rows[-1 if stays else end, -1]]), worst=int(loss.steps[rows[end, width // 2]]),
            value=float(middle[end]), limit=float(middle[start]), points=(end - start) * width,
            message="the loss climbs to {value:.4g} from {limit:.4g}" + ("" if stays else f"; it ends at {middle[-1]:.4g}"),
        )  # fmt: skip


def _in_few_lines(steps: Steps, values: Floats, far: float, at_once: float, *, handful: int = 10) -> Hit | None:
    """Return the rise of the loss in a `handful` of lines, None where it has none that no batch makes."""
    if not 3 <= len(values) <= handful or values.min() <= 0:
        return None
    lowest = np.minimum.accumulate(values)
    worst = int(np.argmax(values / lowest))
    start = int(np.argmin(values[: worst + 1]))
    risen = float(values[worst] / values[start]) - 1
    steady = worst - start > 1 and bool((np.diff(values[start : worst + 1]) > 0).all())
    if risen <= at_once and not (steady and risen > far):
        return None
    return Hit(
        severity="sev2", where="loss", first=int(steps[start + 1]), last=int(steps[-1]), worst=int(steps[worst]),
        value=float(values[worst]), limit=float(values[start]), points=len(values) - start - 1,
        message=f"the loss rises to {{value:.4g}} from {{limit:.4g}} in the {len(values)} points that there are",
    )  # fmt: skip


def _climbs(middle: Floats, least: int) -> Iterator[tuple[int, int]]:
    """Yield first and last block of each stretch that rises `least` times in a row or more."""
    up = np.concatenate(([False], np.diff(middle) > 0, [False]))
    edges = np.flatnonzero(up[1:] != up[:-1])
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start >= least:
            yield int(start), int(end)
