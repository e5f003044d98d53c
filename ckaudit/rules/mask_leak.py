"""MASK001: attention puts weight on later tokens."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.metrics.data import target_shift_match
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.directions import may_be_causal
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("MASK001", severity="sev0", needs=[upper_triangle_mass], wants=[target_shift_match], unit="1")
def mask_leak(mass: Series, match: Series | None, *, most: float = 1e-3, next_token: float = 0.5) -> Iterator[Hit | Skip]:
    """Attention puts weight on later tokens.

    ## What it checks
    The weight that each head puts above the diagonal, on tokens that come later. Under a causal mask it is exactly zero, and
    `most` leaves room for rounding alone (in the lab's dev split all models without the fault have 0.0, leaky ones 0.5 and
    more).
    ## Why it matters
    The model sees what it is to predict: losses become too good to be true, and what it generates is worthless.
    ## False alarms
    Attention that the name of its layer calls that of an encoder or across to one may look anywhere, and is left out. Models
    that may look ahead do so in every head. They are told by their targets: where less than `next_token` of them are
    the next token, or the targets are not known and no head keeps to the past, nothing is judged. A prefix that may be read
    both ways does look ahead: disable the rule for it.
    """
    mass = may_be_causal(mass)
    leaks = (mass.values > most) & mass.finite
    if not leaks.any():
        return
    causal = bool((mass.finite & ~leaks).any())
    known = match is not None and float(np.nanmedian(match.values)) >= next_token
    if not known and not causal:
        yield Skip("not_applicable", "all heads look ahead, and nothing says that the targets are the next tokens")
        return
    for span in spans(mass, leaks):
        yield Hit.over(
            span, "sev0", "{where} puts {value:.2g} of its weight on later tokens: the causal mask leaks",
            badness=mass.values, limit=most,
        )  # fmt: skip
