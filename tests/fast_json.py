"""Quick ways to write checkpoints for tests: most of the time of a test on folders went into writing them."""

import json
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray


def as_json(document: Any) -> str:
    """Return a document as JSON with "NaN" for what is no number, as the contract writes it."""
    quick = msgspec.json.encode(document, enc_hook=float)
    return json.dumps(document, default=float).replace("NaN", '"NaN"') if b"null" in quick else quick.decode()


def histogram(values: NDArray[np.float64], bins: int = 16) -> dict[str, list[float]]:
    """Return the histogram of values over their range as the contract has it.

    >>> histogram(np.array([0.0, 1.0, 1.0, 4.0]), 4)
    {'bins': [0.0, 1.0, 2.0, 3.0, 4.0], 'counts': [1, 2, 0, 1]}
    """
    low, high = float(values.min()), float(values.max())
    if not high > low or not np.isfinite(high - low):
        counts, edges = np.histogram(values, bins)
        return {"bins": edges.tolist(), "counts": counts.tolist()}
    edges = np.linspace(low, high, bins + 1)
    places = np.minimum(np.searchsorted(edges, values.ravel(), side="right") - 1, bins - 1)
    return {"bins": edges.tolist(), "counts": np.bincount(places, minlength=bins).tolist()}
