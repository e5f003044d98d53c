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
from ckaudit.run.run_facts import takes_turns
from ckaudit.run.series import Series, single
from ckaudit.run.spans import spans
from ckaudit.run.tensors import NOT_OF_TOKENS, loss_kind_of, table_of

MIN_MATCH = 0.5
"""Share of targets that are the next token: in a language model all of them are, by chance about a tenth."""

MAX_EQUAL = 0.5  # share of targets that equal their inputs: at most a tenth in healthy text, all where targets were not shifted


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
    The floor is `min_entropy_share` of the entropy of the tokens. The best public models of text come to 20 % of the entropy,
    those of code to 10 % (lab: healthy runs 0.2 and more, leaking masks 0.01 to 0.04).

    - A held-out loss below the floor at `min_evals` evaluations in a row is sev1: memory does not lower it.
    - A training loss below the floor, alone, is sev2. Its level is the median of the last `window` losses, and it stays there for
      `window` losses in a row.
    - Both are notes where the record rules out that the answers are in sight: targets are not the inputs, and no head looks
      ahead, or there is no head. The training loss is a note only where no held-out loss is recorded.
    - A level below zero is sev1 for a loss that is known to be one of tokens, for no cross entropy is negative. For any other
      loss it is a note.
    ## Why it matters
    The model sees what it is to predict, or learns the training set by heart: in both cases the number means nothing (D2.4).
    ## False alarms
    Some losses are rightly low:

    - Tasks with one right answer, such as sums or copies, are learnt to nothing: a note, unless nothing shows that the answers
      are hidden.
    - Text that follows from a source which an encoder reads is a note for the same reason.
    - Runs that are not of tokens, or whose targets are not the next tokens, have no such floor and are not judged by it; nor has
      the sum of the losses of two networks that play against each other.
    """
    if loss_kind_of(facts) == "other" or takes_turns(facts):
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
    if counted:
        honest = _hides_answers(mass, equal, facts) or is_encoder_decoder(facts)
        yield from _below_entropy(level, val, lowest, window, min_evals, honest=honest)


def _below_entropy(
    level: Series, val: Series | None, lowest: float, window: int, min_evals: int, *, honest: bool
) -> Iterator[Hit]:
    """Yield where the held-out loss, or else the training loss, costs less than the entropy of the tokens allows."""
    too_good = False
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
    """Return whether the record shows that no target is in sight: none equals its input, and no head looks ahead."""
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
    """Return running medians of the last `window` finite losses; an empty series where no loss is below `min_loss`."""
    known = np.flatnonzero(loss.finite[:, 0])
    if len(known) < window or not (loss.values[known, 0] < min_loss).any():
        return single("loss", loss.unit, loss.steps[:0], loss.values[:0, :0])
    middle = running_medians(loss.values[known, 0], window)
    return single("loss", loss.unit, loss.steps[known[window - 1 :]], middle)
