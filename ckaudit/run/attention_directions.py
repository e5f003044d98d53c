"""The direction in which each attention layer may look, from run.json or else from the layer's name."""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import AttentionDirection, Manifest
from ckaudit.contract.schema.tensor_names import DECODER, ENCODER, NUMBER, direction_by_name, name_parts
from ckaudit.run.series import Mask, Series


def layer_of(head: str) -> str:
    """Return the layer of a head.

    >>> layer_of("decoder.layers.0.self_attn/head.3")
    'decoder.layers.0.self_attn'
    """
    return head.rpartition("/head")[0] or head


def directions_of(layers: Iterable[str], facts: Manifest | None) -> dict[str, AttentionDirection | None]:
    """Return the attention direction of each layer, from run.json or else from its name; None where it is unknown.

    A layer with an encoder's name counts as bidirectional only if the model also has layers that are not bidirectional: a
    language model may be built of encoder layers and a causal mask. A "bidirectional" attribute does not count in a stack that
    also has causal or prefix layers, because the attribute is often meant for the kernel alone.
    """
    layers = [*layers]
    given: Mapping[str, AttentionDirection] = {} if facts is None or facts.attention is UNSET else facts.attention
    ways = {layer: given.get(layer) or direction_by_name(layer) for layer in layers}
    has_others = any(ways[layer] != "bidirectional" for layer in layers)
    in_order = {_stack(layer) for layer in layers if ways[layer] in ("causal", "prefix")}

    def is_open(layer: str) -> bool:
        by_name_alone = layer not in given and not has_others
        return ways[layer] == "bidirectional" and (by_name_alone or _stack(layer) in in_order)

    return {layer: None if is_open(layer) else way for layer, way in ways.items()}


def is_encoder_decoder(facts: Manifest | None) -> bool:
    """Tell whether a model has an encoder and a decoder, so that its whole output may follow from its input."""
    names = () if facts is None or facts.tensors is UNSET else facts.tensors
    words = {word for name in names for word in name_parts(name)}
    return all(any(side.search(word) for word in words) for side in (ENCODER, DECODER))


def may_be_causal(heads: Series, facts: Manifest | None, *, next_token: bool = False) -> Series:
    """Return the heads that may have to be causal: all but those of bidirectional and cross-attention layers.

    Prefix layers are included, because the attention within a prefix does not count as looking ahead. If run.json or the names
    make every layer bidirectional and the targets are the next tokens, all heads are returned: such a model has no other input
    and must be causal.

    Args:
        heads: A value per head, labels such as "decoder.layers.0.self_attn/head.3".
        facts: Contents of run.json.
        next_token: Whether the targets are known to be the next tokens.
    """
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    if next_token and ways and all(way == "bidirectional" for way in ways.values()):
        return heads
    return heads.only(lambda head: ways[layer_of(head)] not in ("cross", "bidirectional"))


def prefix_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads of layers with prefix attention."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    return frozenset(head for head in heads.labels if ways[layer_of(head)] == "prefix")


def causal_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads of layers that are known to be causal."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    return frozenset(head for head in heads.labels if ways[layer_of(head)] == "causal")


def decoder_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads of layers that are named as a decoder's and are causal or of unknown direction."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    decoding = {layer for layer, way in ways.items() if way in (None, "causal") and any(map(DECODER.search, name_parts(layer)))}
    return frozenset(head for head in heads.labels if layer_of(head) in decoding)


def masked_stacks(mass: Series, *, max_mass: float) -> frozenset[str]:
    """Return the heads in stacks of layers that show a causal mask; layers whose names differ only in numbers form a stack.

    A stack shows a mask if one head gives later tokens a weight of exactly zero at a checkpoint, or if all heads of a layer give
    them no more than rounding at a checkpoint. A single head with a small weight on later tokens shows no mask: it may have
    learnt to look back.

    Args:
        mass: Weight on later tokens, shape (T, H).
        max_mass: Weight that rounding may leave.
    """
    little = np.asarray(mass.finite & (mass.values <= max_mass))
    none: Mask = np.any(mass.finite & (mass.values == 0), axis=0)
    places: dict[str, list[int]] = {}
    for place, head in enumerate(mass.labels):
        places.setdefault(layer_of(head), []).append(place)
    masked = {layer for layer, heads in places.items() if none[heads].any() or little[:, heads].all(1).any()}
    stacks = {_stack(layer) for layer in masked}
    return frozenset(head for head in mass.labels if _stack(layer_of(head)) in stacks)


def mask_changes(mass: Series, heads: frozenset[str], *, max_mass: float) -> Mask:
    """Return the checkpoints at which heads of a stack look ahead because the mask alternates, shape (T, H).

    Such a model is trained with bidirectional attention in some batches and causal attention in others, in all layers at once. A
    lost mask stays lost. So a stack that looks ahead in every layer and at a later checkpoint in no layer has an alternating
    mask.

    Args:
        mass: Weight on later tokens, shape (T, H).
        heads: Heads that nothing says must be causal.
        max_mass: Weight that rounding may leave.
    """
    ahead = np.nan_to_num(mass.values) > max_mass
    changes = np.zeros(ahead.shape, bool)
    stacks: dict[str, list[int]] = {}
    for place, head in enumerate(mass.labels):
        stacks.setdefault(_stack(layer_of(head)), []).append(place)
    for places in stacks.values():
        if not heads.issuperset(mass.labels[place] for place in places):
            continue
        layers = [layer_of(mass.labels[place]) for place in places]
        part = ahead[:, places]
        by_layer = np.array([part[:, [own == layer for own in layers]].any(1) for layer in dict.fromkeys(layers)])  # (L, T)
        whole: Mask = np.all(by_layer, axis=0)
        none: Mask = ~np.any(by_layer, axis=0) & np.any(mass.finite[:, places], axis=1)
        if whole.any() and none[int(np.argmax(whole)) :].any():
            changes[np.ix_(np.flatnonzero(whole), np.array(places))] = True
    return changes


def _stack(layer: str) -> str:
    return NUMBER.sub("#", layer)
