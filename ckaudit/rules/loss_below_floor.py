"""LOSS005: the loss is too good to be true."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.report import Severity
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series, single
from ckaudit.run.spans import spans


@rule("LOSS005", severity="sev1", needs=[train_loss_raw], wants=[val_loss, unigram_entropy], unit="nats/token")
def loss_below_floor(
    loss: Series, val: Series | None, entropy: Series | None, *, floor: float = 0.05, window: int = 20, min_evals: int = 2
) -> Iterator[Hit | Skip]:
    """The loss is lower than an honest model can be.

    ## What it checks
    The held-out loss at `min_evals` evaluations in a row, and the median of the last `window` training losses, against
    `floor` of the entropy of the tokens (the best public models of text come to a fifth, those of code to a tenth; lab:
    healthy runs 0.2 and more, leaking masks 0.01 to 0.04). A held-out loss below is sev1, for it cannot be memory; a
    training loss alone is sev2. A median below zero is sev1: no cross entropy is.
    ## Why it matters
    The model sees what it is to predict, or learns the training set by heart: in both cases the number means nothing
    (D2.4).
    ## False alarms
    Tasks with one right answer, such as sums or copies, are rightly learnt to nothing: there this rule is to be turned
    off. Runs that are not of tokens have no such floor and are not judged by it.
    """
    if loss.points < window:
        yield Skip("too_few_points", f"{loss.points} points of the loss; {window} are needed")
        return
    counted = entropy is not None and entropy.finite.any()
    least = floor * float(np.median(entropy.values[entropy.finite])) if entropy is not None and counted else 0.0
    level = _running(loss, window, least)
    for span in spans(level, level.values < 0, min_points=window):
        yield Hit.over(
            span, "sev1", "the loss is {value:.4g}, below zero: no cross entropy is", badness=-level.values,
            value=level.values, limit=0.0,
        )  # fmt: skip
    if not counted:
        return
    too_good = False
    if val is not None:
        for span in spans(val, (val.values < least) & (val.values >= 0), min_points=min_evals):
            too_good = True
            yield _hit(span.label, val, span.rows, span.column, "sev1", least, "the held-out loss", "the model sees its answers")
    for span in spans(level, (level.values < least) & (level.values >= 0), min_points=window):
        if not too_good:
            reason = "it is learnt by heart, or the model sees its answers"
            yield _hit("loss", level, span.rows, 0, "sev2", least, "the training loss", reason)


def _hit(
    where: str, series: Series, rows: "np.ndarray", column: int, severity: Severity, limit: float, what: str, reason: str
) -> Hit:
    values = series.values[rows, column]
    worst = rows[int(np.argmin(values))]
    return Hit(
        severity=severity, where=where, first=int(series.steps[rows[0]]), last=int(series.steps[rows[-1]]),
        worst=int(series.steps[worst]), value=float(series.values[worst, column]), limit=limit, points=len(rows),
        message=what + " is {value:.3g}, below the {limit:.3g} that honest models of such tokens stay above: " + reason,
    )  # fmt: skip


def _running(loss: Series, window: int, least: float) -> Series:
    """Return the median of each finite loss and those before it, `window` in all; nothing where no loss is below `least`."""
    known = np.flatnonzero(loss.finite[:, 0])
    if len(known) < window or not (loss.values[known, 0] < least).any():
        return single("loss", loss.unit, loss.steps[:0], loss.values[:0, :0])
    middle = np.median(np.lib.stride_tricks.sliding_window_view(loss.values[known, 0], window), axis=1)
    return single("loss", loss.unit, loss.steps[known[window - 1 :]], middle)
