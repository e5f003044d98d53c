"""DATA005: what is held out is in the training set too."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.corpus import train_val_overlap
from ckaudit.metrics.data import held_out_rows_trained_on
from ckaudit.metrics.loss import train_loss_raw, val_loss
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans

TRAINERS = ("huggingface", "lightning")
"""Trainers whose callbacks treat evaluation rows as held out, although nobody declared them so."""


@rule(
    "DATA005",
    severity="sev1",
    needs=[],
    wants=[train_val_overlap, held_out_rows_trained_on, FACTS, train_loss_raw, val_loss],
    unit="%",
    memory=1,
)
def split_overlap(
    overlap: Series | None,
    rows: Series | None,
    facts: Manifest | None,
    loss: Series | None,
    val: Series | None,
    *,
    sev2_percent: float = 4.0,
    sev1_percent: float = 20.0,
    min_equal_losses: int = 3,
) -> Iterator[Hit | Skip]:
    """What is held out is in the training set too.

    ## What it checks
    Whether held-out data was trained on: by the share of held-out documents with a near duplicate in the training data (M37), by
    the share of held-out rows met in the batches looked at, and by equal losses:

    - A share above `sev2_percent` percent, what standard sets were found to have (Lee et al. 2022), is sev2.
    - A share above `sev1_percent` percent is sev1: the held-out set measures memory.
    - Rows that a trainer evaluates on, and that nobody has declared to be held out, are sev2 at most: some trainings evaluate on
      their own rows on purpose.
    - A held-out loss that is the training loss to the last of four digits and more wherever both are known, at least
      `min_equal_losses` times, is sev2: the same rows were measured, or one number was logged under both names.
    ## Why it matters
    The validation loss is then partly a training loss, and every decision that is made by it is too optimistic.
    ## False alarms
    Short texts repeat by chance: headers, licences, greetings. Rows count only where they are the same from end to end. Where
    there are few different rows, any two sets share some: the recorder writes nothing where rows of one batch meet each other
    half as often as they meet held-out rows.
    """
    if loss is not None and val is not None and (hit := _same_losses(loss, val, min_equal_losses)) is not None:
        yield hit
    elif overlap is None and rows is None:
        yield needs_one_of(train_val_overlap, held_out_rows_trained_on)
    if overlap is not None:
        yield from _of_documents(overlap, sev2_percent, sev1_percent)
    if rows is not None:
        # One hit: more and more rows are found, and the first steps say little about their final number.
        is_declared = facts is None or facts.trainer not in TRAINERS
        for span in spans(rows, rows.values > sev2_percent):
            worst = float(rows.values[span.rows, span.column].max())
            yield Hit.over(
                span,
                "sev1" if worst > sev1_percent and is_declared else "sev2",
                "{value:.3g} % of the rows held out were met in batches of the training",
                badness=rows.values,
                limit=sev2_percent,
            )


def _of_documents(overlap: Series, budget: float, leak: float) -> Iterator[Hit]:
    high = overlap.values > leak
    for span in spans(overlap, high):
        yield Hit.over(
            span,
            "sev1",
            "{value:.3g} % of what is held out is in the training data: the evaluation measures memory",
            badness=overlap.values,
            limit=leak,
        )
    for span in spans(overlap, (overlap.values > budget) & ~high):
        yield Hit.over(
            span,
            "sev2",
            "{value:.3g} % of what is held out has a near duplicate in the training data, above {limit:.3g} %",
            badness=overlap.values,
            limit=budget,
        )


def _same_losses(loss: Series, val: Series, min_points: int, *, min_digits: int = 4) -> Hit | None:
    """Return the hit of a held-out loss that is the training loss at each of their common steps, None where it is not."""
    (steps, trained), (at, held_out) = loss.finite_points(), val.finite_points()
    common, first, second = np.intersect1d(steps, at, return_indices=True)
    values = held_out[second]
    if not np.array_equal(trained[first], values):
        return None
    exact = {value for value in values.tolist() if len(f"{abs(value):g}".strip("0.").replace(".", "")) >= min_digits}
    if len(exact) < min_points:
        return None
    return Hit.at(
        common,
        "sev2",
        f"the held-out loss is the training loss to the last digit, {len(common)} times: the same rows were measured, "
        "or one number was logged twice",
        where="val_loss",
    )
