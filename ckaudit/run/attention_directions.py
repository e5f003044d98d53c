"""Which way attention is to look, by what the run says of its layers, or else by their names."""

from collections.abc import Iterable, Mapping

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import AttentionDirection, Manifest
from ckaudit.contract.schema.tensor_names import DECODER, ENCODER, NUMBER, direction_by_name
from ckaudit.run.series import Mask, Series


def layer_of(head: str) -> str:
    """Return the layer of a head.

    >>> layer_of("decoder.layers.0.self_attn/head.3")
    'decoder.layers.0.self_attn'
    """
    return head.rpartition("/head")[0] or head


def directions_of(layers: Iterable[str], facts: Manifest | None) -> dict[str, AttentionDirection | None]:
    """Return which way each layer is to look: as run.json says, else as its name does; None where it is not known.

    An encoder's name alone does not make a layer bidirectional: a language model may be built of encoder layers and a causal
    mask. It does beside layers that are a decoder's, look across or are to be causal. Nor does an attribute that says "not
    causal", which is often a word to the kernel alone, in a stack whose other layers are causal or have a prefix.
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
    """Tell whether a model has an encoder and a decoder: all that it is to say may follow from what it reads."""
    names = () if facts is None or facts.tensors is UNSET else facts.tensors
    words = {word for name in names for word in name.lower().split(".")}
    return all(any(side.search(word) for word in words) for side in (ENCODER, DECODER))


def may_be_causal(heads: Series, facts: Manifest | None, *, next_token: bool = False) -> Series:
    """Return the heads that may have to keep to the past: not those of encoders or looking across.

    What a prefix reads both ways is not counted as looking ahead, so that the layers of a prefix are among them. Where every
    layer looks both ways by its own word, and still the targets are the next tokens, each of them has to be causal: there is
    nothing else for it to read.

    Args:
        heads: A value per head, labels such as "decoder.layers.0.self_attn/head.3".
        facts: What run.json says.
        next_token: Whether the targets are known to be the next tokens.
    """
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    if next_token and ways and all(way == "bidirectional" for way in ways.values()):
        return heads
    return heads.only(lambda head: ways[layer_of(head)] not in ("cross", "bidirectional"))


def prefix_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads whose layer has a prefix that is read both ways."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    return frozenset(head for head in heads.labels if ways[layer_of(head)] == "prefix")


def causal_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads that are known to have to keep to the past."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    return frozenset(head for head in heads.labels if ways[layer_of(head)] == "causal")


def decoder_heads(heads: Series, facts: Manifest | None) -> frozenset[str]:
    """Return the heads of a decoder by its name, whose layers neither look across nor say that they look both ways."""
    ways = directions_of(dict.fromkeys(map(layer_of, heads.labels)), facts)
    decoding = {layer for layer, way in ways.items() if way in (None, "causal") and any(map(DECODER.search, layer.split(".")))}
    return frozenset(head for head in heads.labels if layer_of(head) in decoding)


def masked_stacks(mass: Series, *, max_mass: float) -> frozenset[str]:
    """Return the heads in whose stack of layers a causal mask shows: layers whose names differ by numbers alone are a stack.

    It shows in a head that gives later tokens exactly nothing, and in a layer of which all heads give them no more than
    rounding leaves. A single head that hardly looks ahead shows none: it may have learnt to look back.

    Args:
        mass: Weight on later tokens, shape (T, H).
        max_mass: What rounding leaves of it.
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
    """Return the checkpoints at which heads of a stack look ahead by intent, shape (T, H): a model that is trained in turns.

    Such a model reads both ways in some batches and in order in others, in all layers at once. A mask that is lost stays
    lost: a stack that looks ahead in every layer and at a later checkpoint in none has changed its mask.

    Args:
        mass: Weight on later tokens, shape (T, H).
        heads: Heads that nothing says are to be causal.
        max_mass: What rounding leaves of it.
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
