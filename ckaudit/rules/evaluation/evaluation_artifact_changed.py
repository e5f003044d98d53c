"""EVAL001: files that an evaluation rests on have changed."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.evaluation import eval_artifact_hash
from ckaudit.metrics.loss import train_loss_at_evals, val_loss
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("EVAL001", severity="sev2", needs=[], wants=[eval_artifact_hash, val_loss, train_loss_at_evals], unit="1")
def evaluation_artifact_changed(
    same: Series | None,
    val: Series | None,
    train: Series | None,
    *,
    full_agreement: float = 1.0,
    min_ratio: float = 5.0,
    min_loss_share: float = 0.05,
    evals_before: int = 4,
    evals_after: int = 3,
) -> Iterator[Hit | Skip]:
    """Files that an evaluation rests on have changed.

    ## What it checks
    The rule compares the hash of every artifact at every evaluation with the hash that run.json names, or else with the first
    one.

    - An agreement below `full_agreement` means another file (M59, SR-1): sev2.
    - Where nobody hashed the files, one step of the held-out loss against the training loss counts. It is larger than
      `min_loss_share` of the loss, and more than `min_ratio` times any of the three steps before it and of those after it.
    - Such a step needs `evals_before` evaluations before it and `evals_after` after it in which the two losses go on side by
      side, as they do where only the ruler was changed.
    ## Why it matters
    Scores on both sides of the change do not compare: a regression, or a gain, may come from the harness alone.
    ## False alarms
    There are none for hashes: the same bytes have the same hash. A change that was meant needs a new run of the older
    checkpoints. A held-out loss that steps because model or data changed takes the training loss with it, or goes on apart from
    it: neither is reported.
    """
    if same is None:
        yield from _stepped(val, train, min_ratio, min_loss_share, evals_before, evals_after)
        return
    for span in spans(same, same.values < full_agreement):
        yield Hit.over(
            span,
            "sev2",
            "{where} is not the artifact of the earlier evaluations: scores before and after do not compare",
            badness=-same.values,
            value=same.values,
            limit=full_agreement,
        )


def _stepped(
    val: Series | None, train: Series | None, alone: float, min_step: float, before: int, after: int
) -> Iterator[Hit | Skip]:
    """Yield the single step at which the held-out loss moved away from the training loss and then stayed parallel to it."""
    if val is None or train is None:
        yield Skip("not_recorded", "needs eval_artifact_hash, or val_loss and train_loss_raw")
        return
    rows = np.flatnonzero(val.finite[:, 0] & train.finite[:, 0])
    held_out, trained = val.values[rows, 0], train.values[rows, 0]
    if len(rows) < before + after:
        yield Skip("too_few_points", f"{len(rows)} evaluations with a training loss beside them; {before + after} are needed")
        return
    moves = np.diff(held_out - trained)  # (E - 1,)
    place = before - 1 + int(np.argmax(np.abs(moves[before - 1 : len(moves) - after + 1])))
    size = abs(float(moves[place]))
    usual = float(np.abs(moves[max(0, place - 3) : place]).max())
    beside = float(np.abs(np.diff(trained))[place])
    later = float(np.abs(moves[place + 1 :]).max(initial=0.0))
    stays = abs(float(moves[place:].sum())) > size / 2
    if size > max(alone * max(usual, beside, later), min_step * abs(float(held_out[place]))) and stays:
        yield Hit.at(
            val.steps[rows[place + 1 :]],
            "sev2",
            "the held-out loss goes from {limit:.4g} to {value:.4g} in one evaluation, the training loss goes on as "
            "before: it is measured in another way",
            where=val.labels[0],
            value=float(held_out[place + 1]),
            limit=float(held_out[place]),
            worst=0,
        )
