"""LOSS004: the loss climbs, or stays where it jumped to."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.optimizer import learning_rate
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.robust import Rise, sustained_rise
from ckaudit.run.series import Floats, Series, Steps

FEWEST = 3
"""Two points make no course."""


@rule("LOSS004", severity="sev1", needs=[train_loss_raw], wants=[learning_rate], unit="nats/token")
def loss_rises(
    loss: Series, rate: Series | None, *, blocks: int = 40, climbs: int = 4, min_rise: float = 0.1, min_deviations: float = 6.0
) -> Iterator[Hit | Skip]:
    """The loss climbs, or stays where it jumped to.

    ## What it checks
    From three points on: whether the loss ends above its own lowest level, by more than its noise allows and by a share of
    that level that no batch makes (sustained_rise). Where fewer than eight points tell no noise, the size of the rise alone
    speaks, and the finding says so: sev2, else sev1. Of long logs also the medians of `blocks` equal parts: `climbs` of them in a
    row each above the one before, by more than `min_rise` of where it began and `min_deviations` robust deviations of such
    medians: sev1 where half of it is not given back at the end (D4.1: no recovery), else sev2.
    ## Why it matters
    A spike comes from a batch; a climb comes from the training itself, and goes on until somebody stops it.
    ## False alarms
    A loss that stands higher because the learning rate was set back to a level it had before is a planned restart: a note. A task
    that is made harder on purpose raises the loss as well.
    """
    known = np.flatnonzero(loss.finite[:, 0])
    steps, values = loss.steps[known], loss.values[known, 0]
    if len(known) < FEWEST:
        yield Skip("too_few_points", f"{len(known)} finite points of the loss; {FEWEST} are needed")
        return
    climbing = list(_in_blocks(steps, values, blocks, climbs, min_rise, min_deviations))
    yield from climbing
    if any(hit.severity == "sev1" for hit in climbing) or (rise := sustained_rise(values)) is None:
        return
    yield _stays(steps, values, rise, restarted=_restarted(rate, int(steps[rise.lowest]), int(steps[-1])))


def _stays(steps: Steps, values: Floats, rise: Rise, *, restarted: bool) -> Hit:
    """Return the hit of a loss that ends above its lowest level."""
    worst = rise.onset + int(np.argmax(values[rise.onset :]))
    few = "" if rise.noise_is_known else f", in the {len(values)} points that there are"
    return Hit(
        severity="note" if restarted else "sev1" if rise.noise_is_known else "sev2", where="loss", first=int(steps[rise.onset]),
        last=int(steps[-1]), worst=int(steps[worst]), value=float(values[worst]), limit=rise.low, points=len(steps) - rise.onset,
        message="the loss rises to {value:.4g} from {limit:.4g} and stays there" + few
        + ("; the learning rate had been set back" if restarted else ""),
    )  # fmt: skip


def _restarted(rate: Series | None, lowest: int, last: int, *, raised: float = 1.5) -> bool:
    """Tell whether the learning rate was raised after the lowest loss, to no more than it had been before."""
    if rate is None:
        return False
    known = rate.finite[:, 0]
    steps, values = rate.steps[known], rate.values[known, 0]
    before, after = values[steps <= lowest], values[(steps > lowest) & (steps <= last)]
    return bool(len(before) and len(after) and after.max() >= raised * before[-1] and before.max() * 1.01 >= after.max())


def _in_blocks(
    steps: Steps, values: Floats, blocks: int, climbs: int, min_rise: float, min_deviations: float, *, least: int = 10
) -> Iterator[Hit]:
    """Yield the climbs of a long log, also those that it came back from."""
    width = max(least, len(values) // blocks)
    count = len(values) // width
    if count <= climbs:
        return
    rows = np.arange(len(values) - count * width, len(values)).reshape(count, width)
    table = values[rows]  # (B, W)
    middle = np.median(table, axis=1)
    noise = 1.4826 * float(np.median(np.abs(table - middle[:, None]))) * 1.25 / np.sqrt(width)
    for start, end in _climbs(middle, climbs):
        risen = middle[end] - middle[start]
        if risen <= max(min_rise * abs(middle[start]), min_deviations * noise):
            continue
        stays = middle[-1] > middle[start] + risen / 2
        yield Hit(
            severity="sev1" if stays else "sev2", where="loss", first=int(steps[rows[start + 1, 0]]),
            last=int(steps[rows[-1 if stays else end, -1]]), worst=int(steps[rows[end, width // 2]]),
            value=float(middle[end]), limit=float(middle[start]), points=(end - start) * width,
            message="the loss climbs to {value:.4g} from {limit:.4g}" + ("" if stays else f"; it ends at {middle[-1]:.4g}"),
        )  # fmt: skip


def _climbs(middle: Floats, least: int) -> Iterator[tuple[int, int]]:
    """Yield first and last block of each stretch that rises `least` times in a row or more."""
    up = np.concatenate(([False], np.diff(middle) > 0, [False]))
    edges = np.flatnonzero(up[1:] != up[:-1])
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start >= least:
            yield int(start), int(end)
