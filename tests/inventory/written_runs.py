"""Small runs written to disk as two kinds of writers would: with the seed's own fields alone, or as the Recorder does."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

COUNTS = (64, 64, 576, 1344, 1344, 576, 64, 64)
"""Elements of a matrix in eight bins of its spread, 4,096 in all; of a norm's weight a 64th."""
MATRICES = ("wq", "wk", "wv", "wo", "w1", "w2")
NORMS = ("ln1", "ln2")
WIDTH, HEADS, KEYS = 64, 4, 64
Of = Callable[[int, str], float]


def steady(level: float, noise: float = 0.1) -> Of:
    """Return a number around a level that is the same for the same step and name."""

    @cache
    def value(step: int, name: str) -> float:
        seed = [step, *name.encode()]
        return level * float(np.exp(noise * np.random.default_rng(seed).normal()))

    return value


GRADIENT, UPDATE, ENTROPY, SHARPEST = steady(0.1), steady(2.5e-3), steady(2.5, 0.05), steady(0.4, 0.05)


@dataclass
class Model:
    """A transformer whose numbers are given by step and tensor, layer or head.

    Attributes:
        blocks: How many.
        steps: Of its checkpoints.
        loss: By step.
        gradient: Norm by step and tensor.
        gain: Mean of a norm's weight by step and tensor.
        spread: Standard deviation of a matrix by step and tensor.
        update: Norm of an update by step and tensor, as the Recorder measures it.
        entropy: Nats by step and layer, the same for every head.
        sharpest: Largest probability by step and layer.
        logit: Largest attention logit by step and layer; None: not recorded.
        keys: Whether the number of keys is recorded.
        facts: Further facts of run.json.
        scalars: Further scalars by step.
    """

    blocks: int = 6
    steps: tuple[int, ...] = tuple(range(100, 1300, 100))
    loss: Callable[[int], float] = lambda step: 2.0 + 2.5 * math.exp(-step / 400)
    gradient: Of = GRADIENT
    gain: Of = lambda step, name: 1.0
    spread: Of = lambda step, name: 0.04 * (1 + 1e-4 * step)
    update: Of = UPDATE
    entropy: Of = ENTROPY
    sharpest: Of = SHARPEST
    logit: Of | None = None
    keys: bool = False
    facts: dict[str, Any] = field(default_factory=dict)
    scalars: Callable[[int], dict[str, float]] = lambda step: {}

    @property
    def tensors(self) -> list[str]:
        """The names of its parameters, from the input to the output."""
        names = (NORMS[0], *MATRICES[:4], NORMS[1], *MATRICES[4:])
        inner = [f"layer.{block}.{name}" for block in range(self.blocks) for name in names]
        return ["embedding", *inner, "lm_head"]

    def shape(self, name: str) -> list[int]:
        """Return the shape of a tensor."""
        return [WIDTH] if is_norm(name) else [WIDTH, WIDTH]

    def norm(self, name: str, step: int) -> float:
        """Return the Frobenius norm of a tensor."""
        mean, std = self._moments(step, name)
        return math.sqrt(math.prod(self.shape(name)) * (mean**2 + std**2))

    def _moments(self, step: int, name: str) -> tuple[float, float]:
        return (self.gain(step, name), 0.01) if is_norm(name) else (0.0, self.spread(step, name))

    def checkpoint(self, step: int, *, recorded: bool) -> dict[str, Any]:
        """Return one checkpoint, with the seed's fields alone unless it is recorded by us."""
        layers = [f"layer.{block}" for block in range(self.blocks)]
        document: dict[str, Any] = {
            "schema_version": "ck.analysis.v1",
            "model_scale_hint": "qwen3_0.6b_like",
            "step": step,
            "loss": self.loss(step),
            "weights": {name: self._weights(step, name, recorded=recorded) for name in self.tensors},
            "gradients": {name: {"norm": self.gradient(step, name)} for name in self.tensors},
            "activations": {layer: {"mean": 0.1, "std": 0.45, "sparsity": 0.3} for layer in layers},
            "attention": {layer: self._attention(step, layer) for layer in layers},
        }
        if recorded:
            updates = {name: self.update(step, name) for name in self.tensors}
            document["weight_deltas"] = {
                name: {"norm": size, "relative": size / self.norm(name, step)} for name, size in updates.items()
            }
        return document

    def _weights(self, step: int, name: str, *, recorded: bool) -> dict[str, Any]:
        mean, std = self._moments(step, name)
        edges = [mean + std * (edge - 4) for edge in range(9)]
        made = {
            "mean": mean,
            "std": std,
            "min": mean - 3.5 * std,
            "max": mean + 3.5 * std,
            "percentiles": [mean + std * z for z in (-2.33, -1.64, -0.67, 0, 0.67, 1.64, 2.33)],
            "histogram": {"bins": edges, "counts": [count // (WIDTH if is_norm(name) else 1) for count in COUNTS]},
        }
        return made | {"numel": sum(made["histogram"]["counts"])} if recorded else made

    def _attention(self, step: int, layer: str) -> dict[str, Any]:
        made: dict[str, Any] = {
            "entropy_per_head": [self.entropy(step, layer)] * HEADS,
            "max_attn_per_head": [self.sharpest(step, layer)] * HEADS,
        }
        if self.logit is not None:
            made["max_logit_per_head"] = [self.logit(step, layer)] * HEADS
        if self.keys:
            made |= {"keys": KEYS, "causal": True}
        return made

    def write(self, folder: Path, *, recorded: bool) -> Path:
        """Write the run and return its folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for step in self.steps:
            document = json.dumps(self.checkpoint(step, recorded=recorded))
            (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(document, encoding="utf-8")
        if recorded:
            facts = {
                "schema_version": "ck.run.v1",
                "vocabulary": 512,
                "sequence_length": KEYS,
                **self.facts,
                "tensors": {name: {"shape": self.shape(name)} | place(name) for name in self.tensors},
            }
            (folder / "run.json").write_text(json.dumps(facts), encoding="utf-8")
            lines = [json.dumps({"step": step, **self.line(step)}) for step in range(1, self.steps[-1] + 1)]
            (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return folder

    def line(self, step: int) -> dict[str, float]:
        """Return the scalars of one step."""
        return {"train_loss_raw": self.loss(step) * (1 + 0.01 * noise(step))} | self.scalars(step)


@cache
def noise(step: int) -> float:
    """Return a normal number that is the same for the same step."""
    return float(np.random.default_rng(step).normal())


def is_norm(name: str) -> bool:
    """Tell whether a tensor is a normalisation's."""
    return name.rpartition(".")[2] in NORMS


def place(name: str) -> dict[str, Any]:
    """Return what run.json says of a tensor's place."""
    if not name.startswith("layer."):
        return {"kind": "embedding" if name == "embedding" else "head", "module": name}
    _, depth, own = name.split(".")
    kind = "norm" if is_norm(name) else "attention" if own in MATRICES[:4] else "mlp"
    return {"depth": int(depth), "block": f"layer.{depth}", "kind": kind, "module": name}


def depth_of(name: str) -> int | None:
    """Return the block that a tensor lies in, None outside."""
    return int(name.split(".")[1]) if name.startswith("layer.") else None
