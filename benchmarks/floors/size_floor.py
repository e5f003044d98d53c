"""The least that a plain file of a large model can weigh: four digits of every number, and nothing written that is known.

Shapes, dtypes and counts of elements are left out (run.json has them), zeros of counts, and how many elements a percentile is
of. Twelve grids of bytes are added. The names are the contract's: another reader has to find what it looks for.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ckaudit.contract.schema.checkpoint import Checkpoint

GRID_BYTES = 1366 + len('"sampled_grid_32x32":{"encoding":"q8","shape":[32,32],"min":-0.1234,"max":0.1234,"data":""},')
KNOWN = ("shape", "dtype", "numel", "sampled", "nonfinite_count")
FIRST = {  # what the first sketch of the contract asked for, before movement, outliers and heads that look alike
    "weights": ("mean", "std", "min", "max", "percentiles", "histogram"),
    "gradients": ("norm", "histogram"),
    "activations": ("mean", "std", "sparsity"),
    "attention": ("entropy_per_head", "max_attn_per_head"),
}


def floor(document: Checkpoint, *, first_sketch: bool, grids: int = 12) -> int:
    """Return the bytes of a checkpoint without grids, stripped, with `grids` grids added.

    Args:
        document: The checkpoint.
        first_sketch: Whether only the statistics of the contract's first sketch are written.
        grids: Grids of 32x32 bytes.
    """
    plain = msgspec.to_builtins(document)
    sections = [name for name in FIRST if first_sketch or name in plain]
    if not first_sketch:
        sections.append("weight_deltas")
    stripped = {
        section: {name: _stripped(stats, FIRST[section] if first_sketch else None) for name, stats in plain[section].items()}
        for section in sections
    }
    return len(msgspec.json.encode(stripped)) + grids * GRID_BYTES


def _stripped(stats: Mapping[str, Any], wanted: tuple[str, ...] | None) -> dict[str, Any]:
    names = [name for name in stats if (name in wanted if wanted else name not in KNOWN)]
    return {name: _short(stats[name]) for name in names}


def _short(value: Any) -> Any:
    """Round every number to four digits; bins become their two ends."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {name: _short(each) for name, each in value.items()}
    return [_short(each) for each in value] if isinstance(value, list) else value
