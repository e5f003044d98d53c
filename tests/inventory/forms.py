"""Runs in the forms that people have: the seed's checkpoints and nothing else, scalars alone, a trainer's log, few points.

`seed_checkpoints` writes exactly the fields that the seed's contract prints, at any steps; a `Bend` changes one of its documents,
given how far the run has come from 0 to 1. `scalars` and `trainer_log` write one curve per name. All of them write real files.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

CADENCE = (*range(10, 101, 10), *range(150, 1001, 50))
"""The steps of the seed's own checkpoints up to 1,000: twenty-eight."""
FIFTEEN = tuple(np.linspace(10, 1000, 15).astype(int).tolist())
LEVELS = (1, 5, 25, 50, 75, 95, 99)
FROM_NORMAL = (-2.326, -1.645, -0.674, 0.0, 0.674, 1.645, 2.326)
"""The quantiles of a standard normal distribution at these levels."""
MATRICES = {"wq": 0.02, "wk": 0.02, "wv": 0.02, "wo": 0.02, "w1": 0.02, "w2": 0.02}
KEYS = 32

Document = dict[str, Any]
Bend = Callable[[Document, float, np.random.Generator], None]
Curve = Callable[[float], float]


def seed_checkpoints(
    folder: Path, steps: Sequence[int] = CADENCE, *bends: Bend, blocks: int = 6, heads: int = 4, seed: int = 0,
    loss: Curve | None = None, looks: str = "causal",
) -> Path:  # fmt: skip
    """Write the seed's checkpoints of a healthy language model, or of what `bends` make of it.

    Args:
        folder: Where.
        steps: Steps of the checkpoints.
        bends: Each changes a document in place.
        blocks: Blocks of the model.
        heads: Heads of each.
        seed: Of the noise.
        loss: The loss by how far the run has come; None: a healthy fall.
        looks: "causal" or "both" ways.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(seed)
    course = loss or falling
    for step in steps:
        done = step / max(steps)
        document = _document(int(step), done, course(done), blocks, heads, looks, chance)
        for bend in bends:
            bend(document, done, chance)
        path = folder / f"analysis_checkpoint_step_{step:08d}.json"
        path.write_text(json.dumps(document, default=float), encoding="utf-8")
    return folder


def falling(done: float) -> float:
    """Return a loss that falls from the log of 1,000 as the losses of language models do."""
    return 2.2 + 4.7 * math.exp(-6 * done)


def _document(step: int, done: float, loss: float, blocks: int, heads: int, looks: str, chance: np.random.Generator) -> Document:
    tensors = {f"layer.{block}.{name}": std for block in range(blocks) for name, std in MATRICES.items()}
    tensors |= {"tok_emb": 0.02, "lm_head": 0.02}
    grown = 1 + 0.4 * done
    modules = {f"layer.{block}{part}": size * (1 + block / 4) for block in range(blocks) for part, size in PARTS.items()}
    return {
        "schema_version": "ck.analysis.v1",
        "model_scale_hint": "qwen3_0.6b_like",
        "step": step,
        "loss": loss * float(1 + chance.normal(0, 0.01)),
        "weights": {name: _weights(std * grown, chance) for name, std in tensors.items()},
        "gradients": {name: _gradient(_norm_of(name, done), chance) for name in tensors},
        "activations": {
            name: {"mean": float(chance.normal(0, 0.02)), "std": size * (1 + 0.5 * math.sqrt(done)) * jitter(chance),
                   "sparsity": 0.5 if name.endswith("act") else 0.0}
            for name, size in modules.items()
        },
        "attention": {f"layer.{block}": _attention(done, heads, looks, chance) for block in range(blocks)},
    }  # fmt: skip


PARTS = {"": 1.0, ".mlp.act": 0.6, ".attn": 0.4}


def jitter(chance: np.random.Generator, share: float = 0.03) -> float:
    """Return a factor near 1."""
    return float(np.exp(chance.normal(0, share)))


def _norm_of(name: str, done: float) -> float:
    return 0.3 * (0.4 + 0.6 * math.exp(-5 * done)) * (1.5 if name == "lm_head" else 1.0)


def _weights(std: float, chance: np.random.Generator) -> Document:
    values = chance.normal(0, std, 1024)
    counts, edges = np.histogram(values, 16)
    return {
        "mean": float(values.mean()), "std": float(values.std()), "min": float(values.min()), "max": float(values.max()),
        "percentiles": np.percentile(values, LEVELS).tolist(),
        "histogram": {"bins": edges.tolist(), "counts": counts.tolist()},
        "sampled_grid_32x32": values.reshape(32, 32).round(5).tolist(),
    }  # fmt: skip


def _gradient(norm: float, chance: np.random.Generator) -> Document:
    norm *= jitter(chance, 0.1)
    counts, edges = np.histogram(chance.normal(0, norm / 64, 4096), 16)
    return {"norm": norm, "histogram": {"bins": edges.tolist(), "counts": counts.tolist()}}


def _attention(done: float, heads: int, looks: str, chance: np.random.Generator) -> Document:
    """Return heads that begin uniform, and sharpen each in its own way."""
    sharpness = [(1 + head) * 1.2 * (1 - math.exp(-4 * done)) * jitter(chance, 0.1) for head in range(heads)]
    return attention_of([heads_map(sharp, head, looks) for head, sharp in enumerate(sharpness)])


def heads_map(sharp: float, kind: int, looks: str = "causal", keys: int = KEYS) -> np.ndarray:
    """Return the attention of a head, shape (keys, keys): the sharper, the more it follows its kind of place.

    Args:
        sharp: By how much the logit of the place is above the others; 0: uniform.
        kind: 0 the token before, 1 the first token, 2 the same token, others a content of their own.
        looks: "causal" or "both".
        keys: Length of the sequence.
    """
    query, key = np.indices((keys, keys))
    content = np.random.default_rng(kind).random((keys, keys)) > 0.9
    place = {0: key == np.maximum(query - 1, 0), 1: key == 0, 2: key == query}.get(kind % 4, content)
    logits = sharp * place + 0.0
    if looks == "causal":
        logits = np.where(key > query, -np.inf, logits)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def attention_of(maps: Sequence[np.ndarray]) -> Document:
    """Return the seed's three fields of a layer, from the maps of its heads."""
    with np.errstate(all="ignore"):
        entropies = [-np.nansum(np.where(each > 0, each * np.log(each), 0.0), axis=1).mean() for each in maps]
    return {
        "entropy_per_head": [float(max(0.0, each)) for each in entropies],
        "max_attn_per_head": [float(each.max()) for each in maps],
        "sampled_qk_grid_32x32_per_head": [each.round(6).tolist() for each in maps],
    }


def each_layer(document: Document) -> Iterator[tuple[int, Document]]:
    """Yield each layer of attention, with its number."""
    for name, layer in document["attention"].items():
        yield int(name.rpartition(".")[2]), layer


def scalars(folder: Path, steps: Sequence[int], curves: Mapping[str, Curve], *, noise: float = 0.01, seed: int = 0) -> Path:
    """Write scalars.jsonl: one curve per catalogue name, by how far the run has come."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "scalars.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in _rows(steps, curves, noise, seed)))
    return folder


def trainer_log(folder: Path, steps: Sequence[int], curves: Mapping[str, Curve], *, noise: float = 0.01, seed: int = 0) -> Path:
    """Write trainer_state.json as the Hugging Face Trainer does; names that begin with eval_ have lines of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    history = []
    for row in _rows(steps, curves, noise, seed):
        parts = [{name: value for name, value in row.items() if name.startswith("eval_") is own} for own in (False, True)]
        history += [{"epoch": row["step"] / 100, **part, "step": row["step"]} for part in parts if part.keys() - {"step"}]
    state = {"global_step": max(steps), "max_steps": max(steps), "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder / "trainer_state.json"


def _rows(steps: Sequence[int], curves: Mapping[str, Curve], noise: float, seed: int) -> Iterator[dict[str, Any]]:
    chance = np.random.default_rng(seed)
    for step in steps:
        values = {name: curve(step / max(steps)) for name, curve in curves.items()}
        yield {"step": int(step), **{name: value * float(1 + chance.normal(0, noise)) for name, value in values.items()}}
