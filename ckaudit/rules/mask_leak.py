"""MASK001: attention puts weight on later tokens."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.manifest import Manifest
from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.metrics.data import target_shift_match
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.directions import changes_its_mask, have_a_prefix, may_be_causal, stacks_with_a_mask, to_be_causal
from ckaudit.run.series import Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import loss_kind_of


@rule("MASK001", severity="sev0", needs=[upper_triangle_mass], wants=[target_shift_match, FACTS], unit="1")
def mask_leak(
    mass: Series, match: Series | None, facts: Manifest | None, *, most: float = 1e-3, next_token: float = 0.5
) -> Iterator[Hit | Skip]:
    """Attention puts weight on later tokens.

    ## What it checks
    The weight that each head puts above the diagonal, on tokens that come later. Under a causal mask it is exactly zero, and
    `most` leaves room for rounding alone (in the lab's dev split all models without the fault have 0.0, leaky ones 0.5 and
    more).
    ## Why it matters
    The model sees what it is to predict: losses become too good to be true, and what it generates is worthless.
    ## False alarms
    What run.json says of the attention of each layer comes first, the layer's name second. Attention of an encoder or across
    to one may look anywhere, and is left out; a prefix that is read both ways is not counted. Layers of which
    nothing is known are judged where siblings in their stack keep to the past, or where no stack does and `next_token` of the
    targets are the next token. Where the targets are known to be something else, a stack that looks ahead throughout is
    never judged; nor is one that looks ahead in all layers at some checkpoints and in none later: it is trained in turns.
    """
    share = float(np.nanmedian(match.values)) if match is not None and match.finite.any() else None
    mass = may_be_causal(mass, facts, next_token=share is not None and share >= next_token)
    if not mass.labels:
        yield Skip("not_applicable", "every layer looks both ways or across, by its own word")
        return
    leaks = (mass.values > most) & mass.finite
    if not leaks.any():
        return
    judged, causal = stacks_with_a_mask(mass, most=most), to_be_causal(mass, facts)
    if share is not None and share >= next_token:
        judged = judged or frozenset(mass.labels) - have_a_prefix(mass, facts)
    else:
        leaks &= ~changes_its_mask(mass, frozenset(mass.labels) - causal, most=most)
    # Another task may read both ways through modules that were made for a causal one.
    if (share is None or share >= next_token) and loss_kind_of(facts) != "other":
        judged |= causal
    leaks &= np.isin(mass.labels, [*judged])
    if not judged:
        yield Skip("not_applicable", "all heads look ahead, and nothing says that one of them must not")
        return
    for span in spans(mass, leaks):
        yield Hit.over(
            span, "sev0", "{where} puts {value:.2g} of its weight on later tokens: the causal mask leaks",
            badness=mass.values, limit=most,
        )  # fmt: skip
