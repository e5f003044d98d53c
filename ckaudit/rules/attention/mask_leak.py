"""MASK001: attention puts weight on later tokens."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.attention import upper_triangle_mass
from ckaudit.metrics.data import embedded_shift_match, target_shift_match
from ckaudit.metrics.heads import sampled_upper_mass
from ckaudit.rules.rule import FACTS, Hit, Skip, needs_one_of, rule
from ckaudit.run.attention_directions import causal_heads, decoder_heads, mask_changes, masked_stacks, may_be_causal, prefix_heads
from ckaudit.run.series import Mask, Series
from ckaudit.run.spans import spans
from ckaudit.run.tensors import loss_kind_of


@rule(
    "MASK001",
    severity="sev0",
    needs=[],
    wants=[upper_triangle_mass, sampled_upper_mass, target_shift_match, embedded_shift_match, FACTS],
    unit="1",
)
def mask_leak(
    mass: Series | None,
    sampled: Series | None,
    match: Series | None,
    embedded: Series | None,
    facts: Manifest | None,
    *,
    max_future_share: float = 1e-3,
    next_token: float = 0.5,
) -> Iterator[Hit | Skip]:
    """Attention puts weight on later tokens.

    ## What it checks
    The rule measures the weight that each head puts above the diagonal, on tokens that come later. Under a causal mask this is
    exactly zero: `max_future_share` leaves room for rounding alone (in the lab's dev split all models without the fault have 0.0,
    leaky ones 0.5 and more).
    ## Why it matters
    The model sees what it is to predict: losses become too good to be true, and what the model generates is worthless.
    ## False alarms
    Not every head must be causal:

    - What run.json says of the attention of each layer comes first, the layer's name second.
    - Attention of an encoder, or across to one, may look anywhere and is left out. A prefix that is read both ways is not
      counted.
    - A layer of which nothing is known is judged where siblings in its stack keep to the past, or where no stack does and
      `next_token` of the targets are the next token.
    - A part called a decoder is judged where `next_token` of the targets are the next token of what an embedding reads: a
      translator's decoder is given the sentence that it is to say.
    - Where the targets are known to be something else, a stack that looks ahead throughout is never judged.
    - A stack that looks ahead in all layers at some checkpoints, and in none later, is trained in turns: it is not judged either.
    - Where only sampled maps are recorded, without the mass of whole maps, only layers that run.json says are causal are judged.
      Others that look ahead are a note, for an encoder's do.
    """
    if mass is None and sampled is None:
        yield needs_one_of(upper_triangle_mass, sampled_upper_mass)
        return
    next_tokens = _is_next_token(match, next_token)
    if mass is not None:
        decoders = decoder_heads(mass, facts) if _is_next_token(embedded, next_token) else frozenset()
        yield from _of_whole_maps(mass, facts, next_tokens, decoders, max_future_share)
    elif sampled is not None:
        yield from _of_sampled_maps(sampled, facts, next_tokens, max_future_share)


def _is_next_token(match: Series | None, min_share: float) -> bool | None:
    """Tell whether at least `min_share` of the targets are the next token; None where it is not known."""
    return None if match is None or not match.finite.any() else bool(np.nanmedian(match.values) >= min_share)


def _of_whole_maps(
    mass: Series, facts: Manifest | None, next_tokens: bool | None, decoders: frozenset[str], max_mass: float
) -> Iterator[Hit | Skip]:
    mass = may_be_causal(mass, facts, next_token=next_tokens is True)
    if not mass.labels:
        yield Skip("not_applicable", "every attention layer is declared bidirectional or cross-attention")
        return
    leaks = (mass.values > max_mass) & mass.finite
    if not leaks.any():
        return
    judged = masked_stacks(mass, max_mass=max_mass)
    if next_tokens:
        judged = judged or frozenset(mass.labels) - prefix_heads(mass, facts)
    else:
        free = frozenset(mass.labels) - causal_heads(mass, facts) - decoders
        leaks &= ~mask_changes(mass, free, max_mass=max_mass)
    judged |= decoders | _causal_by_word(mass, facts, next_tokens)
    if not judged:
        yield Skip("not_applicable", "all heads look ahead, and nothing says that one of them must not")
        return
    yield from _leaks(mass, leaks & np.isin(mass.labels, [*judged]), max_mass)


def _of_sampled_maps(sampled: Series, facts: Manifest | None, next_tokens: bool | None, max_mass: float) -> Iterator[Hit | Skip]:
    """Judge the layers that run.json calls causal; yield one note for the others, at the head that looks ahead longest."""
    prefixes = prefix_heads(sampled, facts)
    mass = may_be_causal(sampled, facts, next_token=next_tokens is True).only(lambda head: head not in prefixes)
    ahead = (mass.values > max_mass) & mass.finite
    causal = np.isin(mass.labels, [*_causal_by_word(mass, facts, next_tokens)])
    yield from _leaks(mass, ahead & causal, max_mass)
    unknown = max(spans(mass, ahead & ~causal), key=lambda span: span.points, default=None)
    if unknown is not None:
        yield Hit.over(
            unknown,
            "note",
            "{where} puts {value:.2g} of its sampled weight on later tokens: right in an encoder, a leak in a "
            "causal model; which of them it is, is not recorded",
            badness=mass.values,
            limit=max_mass,
        )


def _causal_by_word(mass: Series, facts: Manifest | None, next_tokens: bool | None) -> frozenset[str]:
    """Return the heads that run.json or names call causal; none where another task reads both ways through such modules."""
    is_other = next_tokens is False or loss_kind_of(facts) == "other"
    return frozenset() if is_other else causal_heads(mass, facts)


def _leaks(mass: Series, leaks: Mask, max_mass: float) -> Iterator[Hit]:
    for span in spans(mass, leaks):
        yield Hit.over(
            span,
            "sev0",
            "{where} puts {value:.2g} of its weight on later tokens: the causal mask leaks",
            badness=mass.values,
            limit=max_mass,
        )
