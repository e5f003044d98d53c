"""Folders with checkpoints of just the fields that the seed's contract prints, written for tests."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.fast_json import as_json, histogram

PARTS = ("wq", "wk", "wv", "wo", "w1", "w2")
PERCENTS = (1, 5, 25, 50, 75, 95, 99)

NormOf = Callable[[str, float], float]
"""Gradient norm of a tensor, by its name and how far the run is, 0 to 1."""


def tensor_names(depth: int) -> list[str]:
    """Return the tensors of a small language model."""
    return ["tok_emb", *(f"layer.{block}.{part}" for block in range(depth) for part in PARTS), "final_norm", "lm_head"]


def ordinary_norm(name: str, progress: float) -> float:
    """Return a gradient norm that falls slowly, with a little of the tensor's own."""
    size = {"tok_emb": 0.6, "final_norm": 0.1, "lm_head": 0.5}.get(name, 0.15)
    return size * (1 - 0.5 * progress)


def write_folder(
    folder: Path,
    *,
    points: int,
    depth: int = 6,
    norm: NormOf = ordinary_norm,
    still: Sequence[str] = (),
    step: float = 0.02,
    loss: Callable[[float], float] = lambda progress: 2.0 + 3.0 * 0.02**progress,
    noise: float = 0.15,
    seed: int = 0,
    gradients_of: Callable[[str], bool] = lambda name: True,
    grids: bool = True,
    digits: int | None = None,
    every: int = 50,
) -> Path:
    """Write checkpoints that hold schema_version, model_scale_hint, step, loss, weights and gradients, and nothing else.

    Args:
        folder: Where to.
        points: How many checkpoints.
        depth: Blocks of the model.
        norm: Gradient norms.
        still: Prefixes of the tensors that never change.
        step: How far the others come from one checkpoint to the next, relative to their size.
        loss: The loss, by progress.
        noise: Standard deviation of the logarithm of each gradient norm.
        seed: Of all noise.
        gradients_of: Whether a tensor has a gradient at all.
        grids: Whether sampled grids are written.
        digits: Significant digits of statistics and grids; None: all.
        every: Steps between checkpoints.
    """
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: random.normal(1.0 if "norm" in name else 0.0, 0.02, (12, 12)) for name in tensor_names(depth)}
    for point in range(points):
        progress = point / max(1, points - 1)
        for name, values in weights.items():
            if point and not any(name.startswith(prefix) for prefix in still):
                weights[name] = values + random.normal(0, step * 0.02, values.shape)
        norms = {name: norm(name, progress) * float(np.exp(random.normal(0, noise))) for name in weights if gradients_of(name)}
        document = {
            "schema_version": "ck.analysis.v1",
            "model_scale_hint": "small",
            "step": point * every,
            "loss": _rounded(loss(progress) * (1 + random.normal(0, 0.01)), digits),
            "weights": _statistics(weights, grids=grids, digits=digits),
            "gradients": {name: {"norm": _rounded(value, digits)} for name, value in norms.items()},
        }
        path = folder / f"analysis_checkpoint_step_{point * every:08d}.json"
        path.write_text(as_json(document), encoding="utf-8")
    return folder


def _statistics(weights: Mapping[str, NDArray[np.float64]], *, grids: bool, digits: int | None) -> dict[str, dict[str, object]]:
    """Return the fields of every tensor; their percentiles are those of all at once, which takes a tenth of the time."""
    percentiles = np.percentile(np.stack([*weights.values()]), PERCENTS, axis=(1, 2)).T
    return {
        name: {
            "mean": _rounded(values.mean(), digits),
            "std": _rounded(values.std(), digits),
            "min": _rounded(values.min(), digits),
            "max": _rounded(values.max(), digits),
            "percentiles": [_rounded(value, digits) for value in levels],
            "histogram": histogram(values),
        }
        | ({"sampled_grid_32x32": _grid(values, digits)} if grids else {})
        for (name, values), levels in zip(weights.items(), percentiles, strict=True)
    }


def _grid(values: NDArray[np.float64], digits: int | None) -> list[list[float]]:
    return values.tolist() if digits is None else [[_rounded(value, digits) for value in row] for row in values]


def _rounded(value: float, digits: int | None) -> float:
    return float(value) if digits is None else float(f"{value:.{digits}g}")
