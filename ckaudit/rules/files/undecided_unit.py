"""UNIT001: nobody can tell whether a rate is harmless in percent or ill as a fraction."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.playbook import undecided_share
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series

LIMITS = {
    "overflow_rate": 10.0,
    "moe_drop_rate": 10.0,
    "activation_outlier_rate": 2.0,
    "near_dup_rate": 20.0,
    "train_val_overlap": 4.0,
    "data_toxicity_rate": 10.0,
    "pii_hit_rate": 10.0,
    "memorization_rate": 10.0,
}
"""Percent from which each rate is ill, as in the rules on it."""

GRAVE_RATES = ("overflow_rate", "moe_drop_rate")
"""Rates whose illness is sev1 or graver."""


@rule("UNIT001", severity="sev2", needs=[undecided_share], unit="%")
def undecided_unit(share: Series, *, falling_share: float = 0.7, min_points: int = 3) -> Iterator[Hit | Skip]:
    """A rate is harmless in percent and ill as a fraction, and nobody says which it is.

    ## What it checks
    Rates that the catalogue has in percent and that never exceed 1 in a log, where nothing else decides whether they are
    fractions. The finding names the option that decides:

    - A rate of at least `min_points` points is reported where, as a fraction, the last third of its points would exceed what is
      ill, and is not below `falling_share` of the first third.
    - It is sev2 for overflows and dropped tokens, which would be sev1, and a note for the others.
    ## Why it matters
    0.14 is 14 % of all updates lost, or one in seven hundred.
    ## False alarms
    A rate that is really below one percent: `--unit NAME=percent` ends the question.
    """
    for column, label in enumerate(share.labels):
        known = np.flatnonzero(share.finite_in(column))
        values = share.values[known, column]
        if len(values) < min_points or values.max() > 100:
            continue
        third = len(values) // 3
        first, last = median(values[:third]), median(values[-third:])
        name = label.partition("/")[0]
        if last > LIMITS[name] and last >= falling_share * first:
            yield Hit.at(
                share.steps[known],
                "sev2" if name in GRAVE_RATES else "note",
                f"{{where}} is about {last / 100:.3g}: as percent that is little, as a fraction it is {{value:.3g}} %, "
                f"and above {{limit:.3g}} % is ill; say --unit {name}=percent or --unit {name}=fraction",
                where=label,
                value=last,
                limit=LIMITS[name],
            )
