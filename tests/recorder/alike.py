"""Two runs of one training against each other: their merged checkpoints, and where these differ."""

import json

import numpy as np

OWN = {"time", "cost", "data", "loss", "activations", "attention", "batch_hash", "train_loss_raw", "loss_function"}
OWN |= {"min_normalized_entropy", "max_attn_logit"}
OWN |= {"grad_carried_over"}  # where ranks hold gradients in parts it is not known
STATED = {"percentiles": 1e-3, "sampled_grid_32x32": 1e-3, "sampled_qk_grid_32x32_per_head": 1e-3}  # four digits


def merged(folder):
    """Return the merged checkpoints by name, without what is one rank's own."""
    paths = sorted(path for path in folder.glob("analysis_checkpoint_*.json") if ".rank" not in path.name)
    return {path.name: json.loads(path.read_bytes()) for path in paths}


def differences(found, expected, place=()):
    """Yield where two documents differ by more than rounding: 1e-4 of a number, or 1e-7 where it is nothing but rounding."""
    if isinstance(expected, dict) and expected.get("norm", 1) < 1e-7 and found["norm"] < 1e-7:
        return  # a head's bias on keys has no gradient but rounding
    if isinstance(expected, dict):
        if found.keys() - OWN != expected.keys() - OWN:
            yield place, found.keys() ^ expected.keys()
        for name in expected.keys() & found.keys() - OWN:
            yield from differences(found[name], expected[name], (*place, name))
    elif place[-1:] == ("counts",):
        # An element at an edge of two bins may fall into either.
        if np.abs(np.subtract(found, expected)).sum() > 0.1 * sum(expected) + 2:
            yield place, found, expected
    elif isinstance(expected, list) and len(found) == len(expected):
        for index, pair in enumerate(zip(found, expected, strict=True)):
            yield from differences(*pair, (*place, index))
    elif isinstance(expected, float):
        if abs(found - expected) > max((STATED.get(name, 1e-4) for name in place), default=0) * abs(expected) + 1e-7:
            yield place, found, expected
    elif found != expected:
        yield place, found, expected
