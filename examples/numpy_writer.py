"""A training in plain NumPy; the writer takes arrays, so JAX or any other framework records in the same way."""

import numpy as np
from numpy.typing import NDArray

from ckaudit.recorder import Writer

Arrays = dict[str, NDArray]
VOCABULARY, WIDTH, RATE, CLIP = 64, 32, 0.5, 1.0
source = np.random.default_rng(0)
weights = {
    "embed.weight": source.normal(size=(VOCABULARY, WIDTH)),
    "fc1.weight": source.normal(size=(WIDTH, 2 * WIDTH)) * WIDTH**-0.5,
    "fc2.weight": source.normal(size=(2 * WIDTH, VOCABULARY)) * (2 * WIDTH) ** -0.5,
}


def batch() -> tuple[NDArray, NDArray]:
    """Return tokens that count upwards, and the token after each."""
    tokens = (source.integers(0, VOCABULARY, (8, 1)) + np.arange(17)) % VOCABULARY
    return tokens[:, :-1], tokens[:, 1:]


def step(w: Arrays, inputs: NDArray, targets: NDArray) -> tuple[float, Arrays, Arrays]:
    """Return the loss, its gradients, and the outputs of the modules."""
    x, y = inputs.reshape(-1), targets.reshape(-1)
    embedded = w["embed.weight"][x]
    hidden = np.maximum(embedded @ w["fc1.weight"], 0)
    logits = hidden @ w["fc2.weight"]
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    loss = -np.log(p[np.arange(len(y)), y]).mean()
    p[np.arange(len(y)), y] -= 1
    back = p / len(y)
    inner = (back @ w["fc2.weight"].T) * (hidden > 0)
    gradients = {
        "embed.weight": np.zeros_like(w["embed.weight"]),
        "fc1.weight": embedded.T @ inner,
        "fc2.weight": hidden.T @ back,
    }
    np.add.at(gradients["embed.weight"], x, inner @ w["fc1.weight"].T)
    return loss, gradients, {"embed": embedded, "relu": hidden, "fc2": logits}


with Writer("run/", vocabulary=VOCABULARY, sequence_length=16, seed=0, clip_norm=CLIP) as writer:
    writer.checkpoint(0, weights=weights)
    for number in range(1, 301):
        inputs, targets = batch()
        loss, gradients, outputs = step(weights, inputs, targets)
        norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
        scale = RATE * min(1.0, CLIP / norm)
        updated = {name: weight - scale * gradients[name] for name, weight in weights.items()}
        due = writer.is_due(number)
        held_out = {"val_loss": step(updated, *batch())[0]} if due else {}
        writer.step(number, loss=loss, learning_rate=RATE, batch=(inputs, targets), grad_global_norm=norm, **held_out)
        if due:
            writer.checkpoint(number, weights=updated, gradients=gradients, previous=weights, activations=outputs)
        weights = updated
print(f"loss {loss:.3f}; now look at it: ckaudit triage run/")
