"""What makes the healthy runs of `tests.inventory.forms` ill: one function, or one curve, for each illness."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from tests.inventory.forms import (
    Bend,
    Curve,
    Document,
    attention_of,
    elements,
    falling,
    gradient_of,
    heads_map,
    weights_of,
)


def loss_is(curve: Curve) -> Bend:
    """Return what replaces the loss."""

    def bend(document: Document, done: float, chance: np.random.Generator) -> None:
        document["loss"] = curve(done) * float(np.exp(chance.normal(0, 0.01)))

    return bend


def flat(_: float) -> float:
    """Return the log of 1,000: nothing is learnt."""
    return 6.9


def not_a_number(_: float) -> float:
    """Return NaN."""
    return math.nan


def climbing(done: float) -> float:
    """Return a loss that falls at first and then climbs for good."""
    return falling(done) if done < 0.3 else falling(0.3) + 8 * (done - 0.3)


def jumps(done: float) -> float:
    """Return a loss that jumps at two fifths, and stays."""
    return falling(done) + (5 if done > 0.4 else 0)


def spikes(done: float) -> float:
    """Return a loss that is calm for half of the run, and then jumps up and back again and again."""
    return falling(done) * (2.5 if done > 0.5 and round(done * 100) % 10 == 0 else 1)


def gradients_times(factor: Callable[[str, float], float]) -> Bend:
    """Return what multiplies the norm of each tensor's gradient, by its name and how far the run has come."""

    def bend(document: Document, done: float, chance: np.random.Generator) -> None:
        for name, each in document["gradients"].items():
            document["gradients"][name] = gradient_of(each["norm"] * factor(name, done), chance)

    return bend


def block_of(name: str) -> int:
    """Return the block of a tensor, -1 of the embedding and 99 of the head."""
    parts = name.split(".")
    return int(parts[1]) if len(parts) > 2 else -1 if name == "tok_emb" else 99


def pinch(name: str, done: float) -> float:
    """Blocks 0 to 2 and the embedding get a thousandth, behind a pinch in the middle of the depth."""
    return 1e-3 if block_of(name) < 3 and done > 0.2 else 1.0


def vanishing(name: str, _: float) -> float:
    """Each block gets a hundredth of what the next gets."""
    return 0.01 ** max(0, 5 - block_of(name))


def dead(name: str, _: float) -> float:
    """One tensor gets nothing."""
    return 0.0 if name == "layer.3.w1" else 1.0


def exploding(_: str, done: float) -> float:
    """All of them grow without end."""
    return math.exp(9 * done)


def dominant(name: str, _: float) -> float:
    """One tensor has nearly all of the squared norm."""
    return 60.0 if name == "layer.3.w1" else 1.0


def heads_are(kind: Callable[[int], int], sharp: Curve) -> Bend:
    """Return what replaces all attention: of which kind each head is, and how sharp by how far the run has come."""

    def bend(document: Document, done: float, chance: np.random.Generator) -> None:
        for name, layer in document["attention"].items():
            heads = range(len(layer["entropy_per_head"]))
            spread = [sharp(done) * float(np.exp(chance.normal(0, 0.02))) for _ in heads]
            document["attention"][name] = attention_of([heads_map(spread[head], kind(head)) for head in heads])

    return bend


def activations_times(std: Curve, *, firing: Curve | None = None, part: str = "") -> Bend:
    """Return what multiplies the spread of all outputs, and says what share of the activation functions' fire."""

    def bend(document: Document, done: float, _: np.random.Generator) -> None:
        for name, each in document["activations"].items():
            each["std"] *= std(done) if name.endswith(part) else 1.0
            if firing is not None and name.endswith("act"):
                each["sparsity"] = 1 - firing(done)

    return bend


def still(stands: Callable[[str], bool]) -> Bend:
    """Return what keeps the weights of some tensors where they started."""

    def bend(document: Document, _: float, __: np.random.Generator) -> None:
        for name in document["weights"]:
            if stands(name):
                document["weights"][name] = weights_of(elements(name, 0.0))

    return bend


SEED: Mapping[str, Bend] = {
    "flat": loss_is(flat),
    "nan": loss_is(not_a_number),
    "climbing": loss_is(climbing),
    "jumps": loss_is(jumps),
    "spikes": loss_is(spikes),
    "pinch": gradients_times(pinch),
    "vanishing": gradients_times(vanishing),
    "dead": gradients_times(dead),
    "exploding": gradients_times(exploding),
    "dominant": gradients_times(dominant),
    "collapse": heads_are(lambda head: head % 3, lambda done: 14 * done),
    "uniform": heads_are(lambda head: head, lambda _: 0.0),
    "first_token": heads_are(lambda _: 1, lambda done: 5 * min(1, 3 * done)),
    "diagonal": heads_are(lambda _: 2, lambda done: 5 * min(1, 3 * done)),
    "copies": heads_are(lambda _: 7, lambda done: 3 * min(1, 3 * done)),
    "activations_explode": activations_times(lambda done: math.exp(6 * max(0.0, done - 0.3))),
    "units_die": activations_times(lambda _: 1.0, firing=lambda done: 0.5 * math.exp(-8 * done)),
    "nothing_moves": still(lambda _: True),
    "one_tensor_stands": still(lambda name: name == "layer.3.w1"),
    "blocks_stand": still(lambda name: 0 <= block_of(name) < 5),
    "core_stands": still(lambda name: 0 <= block_of(name) < 99),
    "embedding_stands": still(lambda name: name == "tok_emb"),
}
"""What the seed's fields can show."""
