"""Runs in the forms that people have: the seed's checkpoints and nothing else, scalars alone, a trainer's log, few points.

`seed_checkpoints` writes exactly the fields that the seed's contract prints, at any steps; a `Bend` of `tests.inventory.ill`
changes its documents, given how far the run has come from 0 to 1. `scalars` and `trainer_log` write one curve per name. All of
them write real files.
"""

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from tests.fast_json import as_json, histogram

CADENCE = (*range(10, 101, 10), *range(150, 1001, 50))
"""The steps of the seed's own checkpoints up to 1,000: twenty-eight."""
FIFTEEN = tuple(np.linspace(10, 1000, 15).astype(int).tolist())
LEVELS = (1, 5, 25, 50, 75, 95, 99)
MATRICES = ("wq", "wk", "wv", "wo", "w1", "w2")
MODULES = {"": 1.0, ".attn": 0.4, ".mlp.act": 0.6}
"""What each block's stream, attention and activation function give out, as a standard deviation."""
KEYS = 16
SIDE = 10
"""Rows and columns of a sampled tensor."""

Document = dict[str, Any]
Map = NDArray[np.float64]
Curve = Callable[[float], float]
Bend = Callable[[Document, float, np.random.Generator], None]


def seed_checkpoints(
    folder: Path, steps: Sequence[int] = CADENCE, *bends: Bend, blocks: int = 6, heads: int = 4, looks: str = "causal"
) -> Path:
    """Write the seed's checkpoints of a healthy language model, or of what `bends` make of it.

    Args:
        folder: Where.
        steps: Steps of the checkpoints.
        bends: Each changes a document, and the fields of its tensors and modules, in place; no list of numbers.
        blocks: Blocks of the model.
        heads: Heads of each.
        looks: "causal" or "both" ways.
    """
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng(0)
    for step, (healthy, written) in zip(steps, _healthy(tuple(steps), blocks, heads, looks), strict=True):
        document = {name: _own(each) if isinstance(each, dict) else each for name, each in healthy.items()}
        for bend in bends:
            bend(document, step / max(steps), chance)
        text = as_json({name: _as_written(document[name], healthy[name], written[name]) for name in document})
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(text, encoding="utf-8")
    return folder


@lru_cache(maxsize=4)
def _healthy(steps: tuple[int, ...], blocks: int, heads: int, looks: str) -> list[tuple[Document, Document]]:
    """Return healthy checkpoints, which are not to be changed, each also with its tensors and modules as JSON."""
    chance, made = np.random.default_rng(0), []
    for step in steps:
        done = step / max(steps)
        document = {
            "schema_version": "ck.analysis.v1",
            "model_scale_hint": "qwen3_0.6b_like",
            "step": int(step),
            "loss": falling(done) * jitter(chance, 0.01),
            **_sections(done, blocks, heads, looks, chance),
        }
        made.append((document, {name: _written(each) for name, each in document.items()}))
    return made


def _written(value: Any) -> Any:
    return {name: Raw(as_json(each)) for name, each in value.items()} if isinstance(value, dict) else Raw(as_json(value))


def _as_written(value: Any, healthy: Any, written: Any) -> Any:
    """Return a part of a checkpoint as JSON, which is there already of what is still healthy."""
    if not isinstance(value, dict):
        return _written(value)
    return {name: written[name] if each == healthy[name] else Raw(as_json(each)) for name, each in value.items()}


def _own(section: Document) -> Document:
    """Return a copy of a section whose fields may be replaced."""
    return {name: dict(fields) for name, fields in section.items()}


def falling(done: float) -> float:
    """Return a loss that falls from the log of 1,000 as the losses of language models do."""
    return 2.2 + 4.7 * math.exp(-6 * done)


def jitter(chance: np.random.Generator, share: float = 0.03) -> float:
    """Return a factor near 1."""
    return float(np.exp(chance.normal(0, share)))


def _sections(done: float, blocks: int, heads: int, looks: str, chance: np.random.Generator) -> Document:
    tensors = ["tok_emb", *(f"layer.{block}.{name}" for block in range(blocks) for name in MATRICES), "lm_head"]
    return {
        "weights": {name: weights_of(elements(name, done)) for name in tensors},
        "gradients": {name: gradient_of(_norm(name, done) * jitter(chance, 0.1), chance) for name in tensors},
        "activations": {
            f"layer.{block}{part}": {
                "mean": float(chance.normal(0, 0.02)),
                "std": size * (1 + block / 4) * (1 + 0.5 * math.sqrt(done)) * jitter(chance),
                "sparsity": 0.5 if part.endswith("act") else 0.0,
            }
            for block in range(blocks)
            for part, size in MODULES.items()
        },
        "attention": {f"layer.{block}": _attention(done, heads, looks, chance) for block in range(blocks)},
    }


def elements(name: str, done: float, std: float = 0.02) -> Map:
    """Return the weights of a tensor, which move from where they started by up to half of their size."""
    chance = np.random.default_rng(zlib.crc32(name.encode()))
    start, way = chance.normal(0, std, (2, SIDE, SIDE))
    return np.asarray(start + 0.5 * math.sqrt(done) * way)


def weights_of(values: Map) -> Document:
    """Return the seed's fields of a tensor."""
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "min": float(values.min()),
        "max": float(values.max()),
        "percentiles": np.percentile(values, LEVELS).tolist(),
        "histogram": histogram(values),
        "sampled_grid_32x32": values.round(7).tolist(),
    }


def _norm(name: str, done: float) -> float:
    return 0.3 * (0.4 + 0.6 * math.exp(-5 * done)) * (1.5 if name == "lm_head" else 1.0)


def gradient_of(norm: float, chance: np.random.Generator, count: int = 4096) -> Document:
    """Return the seed's fields of a gradient."""
    return {"norm": norm, "histogram": histogram(chance.normal(0, max(norm, 1e-300) / 64, count))}


def _attention(done: float, heads: int, looks: str, chance: np.random.Generator) -> Document:
    """Return heads that begin uniform, and sharpen each in its own way."""
    sharpness = [(2 + head % 3) * (1 - math.exp(-4 * done)) * jitter(chance, 0.05) for head in range(heads)]
    return attention_of([heads_map(sharp, head, looks) for head, sharp in enumerate(sharpness)])


def heads_map(sharp: float, kind: int, looks: str = "causal", keys: int = KEYS) -> Map:
    """Return the attention of a head, shape (keys, keys).

    Args:
        sharp: By how much the logit of its place is above the others; 0: uniform.
        kind: 0 the token before, 1 the first token, 2 the same token, and else a content of its own.
        looks: "causal" or "both".
        keys: Length of the sequence.
    """
    query, key = np.indices((keys, keys))
    content = np.random.default_rng(kind).random((keys, keys)) > 0.9
    place = {0: key == np.maximum(query - 1, 0), 1: key == 0, 2: key == query}.get(kind, content)
    logits = np.where(key > query, -np.inf, sharp * place) if looks == "causal" else sharp * place
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def attention_of(maps: Sequence[Map]) -> Document:
    """Return the seed's three fields of a layer, from the maps of its heads."""
    with np.errstate(all="ignore"):
        entropies = [-np.where(each > 0, each * np.log(each), 0.0).sum(axis=1).mean() for each in maps]
    return {
        "entropy_per_head": [float(max(0.0, each)) for each in entropies],
        "max_attn_per_head": [float(each.max()) for each in maps],
        "sampled_qk_grid_32x32_per_head": [each.round(6).tolist() for each in maps],
    }


def scalars(folder: Path, steps: Sequence[int], curves: Mapping[str, Curve], *, noise: float = 0.01, seed: int = 0) -> Path:
    """Write scalars.jsonl: one curve per catalogue name, by how far the run has come."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(row).replace("NaN", '"NaN"') for row in _rows(steps, curves, noise, seed)]
    (folder / "scalars.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


TRAINERS_NAMES = {"train_loss_raw": "loss", "val_loss": "eval_loss", "grad_global_norm": "grad_norm"}


def trainer_log(folder: Path, steps: Sequence[int], curves: Mapping[str, Curve], *, noise: float = 0.01, seed: int = 0) -> Path:
    """Write trainer_state.json as the Hugging Face Trainer does: what is evaluated has lines of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {TRAINERS_NAMES.get(name, name): curve for name, curve in curves.items()}
    history: list[Document] = []
    for row in _rows(steps, own, noise, seed):
        evaluated = {name: row.pop(name) for name in [*row] if name.startswith("eval_")}
        history.append({**row, "epoch": row["step"] / 100})
        history += [{**evaluated, "epoch": row["step"] / 100, "step": row["step"]}] if evaluated else []
    state = {"global_step": int(max(steps)), "max_steps": int(max(steps)), "log_history": history}
    (folder / "trainer_state.json").write_text(json.dumps(state), encoding="utf-8")
    return folder / "trainer_state.json"


def _rows(steps: Sequence[int], curves: Mapping[str, Curve], noise: float, seed: int) -> Iterator[Document]:
    chance = np.random.default_rng(seed)
    for step in steps:
        row: Document = {"step": int(step)}
        for name, curve in curves.items():
            exact = name.startswith(EXACT)
            row[name] = curve(step / max(steps)) * (1.0 if exact else jitter(chance, noise))
        yield row


EXACT = ("learning_rate", "replay_", "parity_", "tokens_seen", "probe_accuracy", "clip_coefficient")
"""Names of what a run has no noise in."""
