"""What makes the healthy runs of `tests.inventory.forms` ill: one function, or one curve, for each illness."""

import math
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from tests.inventory.forms import Bend, Curve, Document, attention_of, elements, falling, gradient_of, heads_map, weights_of


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
            document["gradients"][name] = gradient_of(each["norm"] * factor(name, done), chance, 512)

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
            own = sharp(done) * float(np.exp(chance.normal(0, 0.02)))
            heads = range(len(layer["entropy_per_head"]))
            document["attention"][name] = attention_of([heads_map(own, kind(head)) for head in heads])

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
                document["weights"][name] = _first(name)

    return bend


@cache
def _first(name: str) -> Document:
    return weights_of(elements(name, 0.0))


def course(*points: tuple[float, float]) -> Curve:
    """Return straight lines through points, (how far the run has come, value)."""
    places, values = zip(*points, strict=True)
    return lambda done: float(np.interp(done, places, values))


def shallow(done: float) -> float:
    """Return a loss that falls at first no faster than a straight line, and hardly faster at last."""
    return 6.9 - 4.9 * done**1.2


straight = course((0, 6.9), (1, 2.0))
"""A loss that falls at its end as fast as ever."""

SEED: Mapping[str, Bend] = {
    "flat": loss_is(flat),
    "nan": loss_is(not_a_number),
    "climbing": loss_is(climbing),
    "jumps": loss_is(jumps),
    "spikes": loss_is(spikes),
    "shallow": loss_is(shallow),
    "straight": loss_is(straight),
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


KNOWN = course((0, 0), (0.02, 0.1), (0.1, 0.4), (0.4, 0.8), (1, 0.95))
"""The playbook's curve of what is memorized, in a run of 5,000 steps."""
HEALTHY: Mapping[str, Curve] = {
    "train_loss_raw": falling,
    "val_loss": lambda done: falling(done) + 0.05,
    "learning_rate": course((0, 3e-6), (0.1, 3e-4), (1, 3e-5)),
    "grad_global_norm": lambda done: 0.6 + 1.5 * math.exp(-8 * done),
    "clip_coefficient": lambda done: min(1.0, 0.5 + 20 * done),
    "tokens_seen": lambda done: 163_840_000 * done,
    "update_to_weight": lambda done: 1e-3 * min(1.0, 0.01 + done / 0.1) * (1.1 - done),
    "max_attn_logit": lambda done: 4 + 8 * (1 - math.exp(-5 * done)),
    "attn_entropy": lambda done: 3.2 - 1.0 * (1 - math.exp(-4 * done)),
    "residual_rms": lambda done: 1 + 0.4 * math.sqrt(done),
    "parity_loss_diff": lambda done: 2e-7 + 3e-7 * done,
    "parity_param_diff": lambda done: 2e-6 + 3e-6 * done,
    "replay_identical": lambda _: 1.0,
    "replay_loss_diff": lambda _: 0.0,
    **{f"probe_perplexity/probe_{number}": lambda done: math.exp(6.9 * (1 - KNOWN(done))) for number in range(10)},
    "probe_accuracy/train": KNOWN,
    "probe_accuracy/held_out": lambda done: 0.9 * KNOWN(done),
    "probe_overlap/train": KNOWN,
    "slice_val_loss/instruction": lambda done: falling(done) + 0.1,
    "microbench_score/coherence": course((0, 0.1), (0.3, 0.8), (1, 0.9)),
    "microbench_score/fluency": course((0, 0.1), (0.3, 0.8), (1, 0.9)),
    "microbench_score/instruction_following": course((0, 0.05), (1, 0.15)),
    "microbench_score/format_adherence": course((0, 0.1), (0.3, 0.8), (1, 0.95)),
    "microbench_score/consistency": course((0, 0.1), (0.3, 0.8), (1, 0.9)),
}
"""What a healthy run logs under names of the catalogue."""
TRAINERS = ("train_loss_raw", "val_loss", "learning_rate", "grad_global_norm")
"""What a trainer's log holds of it."""

LOGGED: Mapping[str, Mapping[str, Curve | None]] = {
    "flat": {"train_loss_raw": flat},
    "nan": {"train_loss_raw": not_a_number, "val_loss": None},
    "climbing": {"train_loss_raw": climbing},
    "jumps": {"train_loss_raw": jumps},
    "spikes": {"train_loss_raw": spikes, "val_loss": None},
    "oscillates": {"train_loss_raw": lambda done: 4 + 0.8 * math.sin(260 * done), "val_loss": None},
    "shallow": {"train_loss_raw": shallow},
    "straight": {"train_loss_raw": straight},
    "no_gain_in_decay": {"train_loss_raw": course((0, 6.9), (0.1, 3.5), (1, 3.5))},
    "gradient_explodes": {"grad_global_norm": lambda done: 0.6 * math.exp(8 * done)},
    "always_clipped": {"clip_coefficient": lambda _: 0.01, "grad_global_norm": lambda done: 100 + 10 * math.exp(-8 * done)},
    "overfits": {"val_loss": course((0, 6.9), (0.3, 3.0), (1, 4.5))},
    "collapse": {"attn_entropy": course((0, 2.2), (0.2, 1.6), (0.4, 0.8), (0.6, 0.2), (0.8, 0.1), (1, 0.1))},
    "stream_explodes": {"residual_rms": lambda done: math.exp(6 * done)},
    "no_update": {"update_to_weight": lambda _: 0.0, "train_loss_raw": flat},
    "parity_breaks": {"parity_loss_diff": course((0, 1e-7), (1, 0.3)), "parity_param_diff": course((0, 1e-6), (1, 0.2))},
    "replay_differs": {"replay_identical": lambda _: 0.0, "replay_loss_diff": lambda _: 1e-3},
    "nothing_kept": {
        **{f"probe_perplexity/probe_{number}": lambda _: 990.0 for number in range(10)},
        **{f"probe_{name}": lambda _: 0.01 for name in ("accuracy/train", "accuracy/held_out", "overlap/train")},
    },
    "forgets": {
        **{f"probe_perplexity/probe_{number}": course((0, 990), (0.4, 5), (1, 60)) for number in range(10)},
        "probe_accuracy/train": course((0, 0), (0.4, 0.8), (1, 0.2)),
    },
    "recites": {"probe_accuracy/held_out": lambda _: 0.02},
    "known_from_the_start": {"probe_accuracy/train": course((0, 0.3), (1, 0.35))},
    "two_probes": {f"probe_perplexity/probe_{number}": None for number in range(2, 10)},
    "babble": {
        "train_loss_raw": lambda done: 3.5 + 3.4 * math.exp(-60 * done),
        **{f"microbench_score/{name}": lambda _: 0.1 for name in ("coherence", "fluency", "format_adherence", "consistency")},
    },
}
"""What logged numbers can show: the curves that stand in for the healthy ones, None where one is missing."""


def logged(ill: str) -> dict[str, Curve]:
    """Return all curves of a run with an illness; held-out text costs a little more than the training's, unless it says else."""
    bent = dict(LOGGED[ill]) if ill else {}
    if (train := bent.get("train_loss_raw")) is not None:
        bent.setdefault("val_loss", lambda done: train(done) + 0.05)
    return {name: curve for name, curve in {**HEALTHY, **bent}.items() if curve is not None}
