"""LOSS005: the loss is too good to be true."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.report import Severity
from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.metrics.data import target_equals_input, target_shift_match
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.metrics.reductions import running_medians
from ckaudit.metrics.scaling import unigram_entropy
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.attention_directions import is_encoder_decoder, may_be_causal
from ckaudit.run.medians import median
from ckaudit.run.series import Series, single
from ckaudit.run.spans import spans
from ckaudit.run.tensors import NOT_OF_TOKENS, loss_kind_of, table_of

MIN_MATCH = 0.5
"""Share of targets that are the next token: all of them in a language model, about a tenth by chance."""

MAX_EQUAL = 0.5  # share of targets that are their inputs: healthy text has a tenth at most, targets that were not shifted all


@rule(
    "LOSS005",
    severity="sev1",
    needs=[train_loss_raw],
    wants=[val_loss, unigram_entropy, upper_triangle_mass, target_equals_input, target_shift_match, FACTS],
    unit="nats/token",
)
def loss_below_floor(
    loss: Series,
    val: Series | None,
    entropy: Series | None,
    mass: Series | None,
    equal: Series | None,
    match: Series | None,
    facts: Manifest | None,
    *,
    min_entropy_share: float = 0.05,
    window: int = 20,
    min_evals: int = 2,
) -> Iterator[Hit | Skip]:
    """The loss is lower than an honest model can be.

    ## What it checks
    The held-out loss at `min_evals` evaluations in a row, and the median of the last `window` training losses, against
    `min_entropy_share` of the entropy of the tokens (the best public models of text come to a fifth, those of code to a tenth;
    lab: healthy runs 0.2 and more, leaking masks 0.01 to 0.04). A held-out loss below is sev1, for it cannot be memory; a
    training loss alone is sev2. Both are notes where the record rules an answer in sight out (targets are not the inputs, and no
    head looks ahead or there is none) and no held-out loss says that it is memory. A median below zero is sev1 of a loss that is
    known to be one of tokens, for no cross entropy is; of any other it is a note.
    ## Why it matters
    The model sees what it is to predict, or learns the training set by heart: in both cases the number means nothing
    (D2.4).
    ## False alarms
    Tasks with one right answer, such as sums or copies, are rightly learnt to nothing: a note, unless nothing tells that the
    answers are hidden; so is what follows from a source that an encoder reads. Runs that are not of tokens, or
    whose targets are not the next ones, have no such floor and are not judged by it.
    """
    if loss_kind_of(facts) == "other":
        yield Skip("not_applicable", NOT_OF_TOKENS)
        return
    known = match.values[match.finite] if match is not None else np.empty(0)
    if len(known) and median(known) < MIN_MATCH and not (equal is not None and (equal.values[equal.finite] >= MAX_EQUAL).any()):
        yield Skip("not_applicable", "targets are not the tokens that come next: what those cost at least says nothing of them")
        return
    if loss.points < window:
        yield Skip("too_few_points", f"{loss.points} points of the loss; {window} are needed")
        return
    counted = entropy is not None and entropy.finite.any()
    lowest = min_entropy_share * median(entropy.values[entropy.finite]) if entropy is not None and counted else 0.0
    level = _running(loss, window, lowest)
    for span in spans(level, level.values < 0, min_points=window):
        yield Hit.over(
            span,
            "sev1" if loss_kind_of(facts) == "nats_per_token" else "note",
            "the loss is {value:.4g}, below zero: no cross entropy is",
            badness=-level.values,
            value=level.values,
            limit=0.0,
        )
    if not counted:
        return
    too_good, honest = False, _hides_answers(mass, equal, facts) or is_encoder_decoder(facts)
    if val is not None:
        for span in spans(val, (val.values < lowest) & (val.values >= 0), min_points=min_evals):
            too_good = True
            reason = "the task has one right answer" if honest else "the model sees its answers"
            severity: Severity = "note" if honest else "sev1"
            yield _hit(span.label, val, span.rows, span.column, severity, lowest, "the held-out loss", reason)
    for span in spans(level, (level.values < lowest) & (level.values >= 0), min_points=window):
        if not too_good:
            other = "the task has one right answer" if honest else "the model sees its answers"
            reason = f"it is learnt by heart, or {other}"
            alone = val is None or not val.finite.any()
            yield _hit("loss", level, span.rows, 0, "note" if honest and alone else "sev2", lowest, "the training loss", reason)


def _hides_answers(mass: Series | None, equal: Series | None, facts: Manifest | None) -> bool:
    """Return whether the record shows that no target is in sight: not in its own place, and no head looks ahead."""
    if equal is None or not (equal.values[equal.finite] < MAX_EQUAL).all():
        return False
    if mass is not None and (mass := may_be_causal(mass, facts)).labels:
        return bool((mass.values[mass.finite] == 0).all())
    table = table_of(facts)
    return bool(table.facts) and not any(table.kind(name) == "attention" for name in table.facts)


def _hit(
    where: str, series: Series, rows: "np.ndarray", column: int, severity: Severity, limit: float, what: str, reason: str
) -> Hit:
    values = series.values[rows, column]
    worst = int(np.argmin(values))
    return Hit.at(
        series.steps[rows],
        severity,
        what + " is {value:.3g}, below the {limit:.3g} that honest models of such tokens stay above: " + reason,
        where=where,
        value=float(values[worst]),
        limit=limit,
        worst=worst,
    )


def _running(loss: Series, window: int, min_loss: float) -> Series:
    """Return the median of each finite loss and those before it, `window` in all; nothing where no loss is below `min_loss`."""
    known = np.flatnonzero(loss.finite[:, 0])
    if len(known) < window or not (loss.values[known, 0] < min_loss).any():
        return single("loss", loss.unit, loss.steps[:0], loss.values[:0, :0])
    middle = running_medians(loss.values[known, 0], window)
    return single("loss", loss.unit, loss.steps[known[window - 1 :]], middle)
