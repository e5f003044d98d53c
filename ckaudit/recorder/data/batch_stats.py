"""Facts of one batch: its hash, how its targets relate to its inputs, and which tokens it holds."""

import math
from typing import Any

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.checkpoint import BatchFacts
from ckaudit.contract.schema.numbers import Number
from ckaudit.recorder.data.fingerprint import fingerprint, name_of
from ckaudit.recorder.stats.arrays import Array, dtype_name, to_numpy
from ckaudit.recorder.stats.float32_rounding import shortest

IGNORED = -100  # the target that torch.nn.functional.cross_entropy leaves out
BUCKETS = 256
TOKEN_TYPES = ("int64", "int32", "int16", "uint8")


def pair(batch: Any) -> tuple[Array | None, Array | None]:
    """Return inputs and targets of a batch: an array, a pair of them, or a mapping as tokenizers make it."""
    if isinstance(batch, tuple | list):
        parts = list(batch)
        inputs, targets, *_ = (*parts, None, None)
        return inputs if _is_array(inputs) else None, targets if _is_array(targets) else None
    if _is_array(batch):
        return batch, None
    if hasattr(batch, "get"):
        return batch.get("input_ids"), batch.get("labels")
    return None, None


def batch_hash(batch: Any) -> str | None:
    """Return a hash of the inputs; None where the batch has none."""
    inputs = pair(batch)[0]
    return None if inputs is None else name_of(int(fingerprint(inputs)), inputs.shape)


def batch_facts(
    batch: Any, *, input_hash: str | None, batch_id: str | int | None, source: str | None, vocabulary: int | None
) -> BatchFacts | None:
    """Return what is known of a batch, None where that is nothing.

    Args:
        batch: Inputs and targets in any form that `pair` takes; only of a pair are the targets those that the loss saw.
        input_hash: What `batch_hash` said of it.
        batch_id: The loader's own name of it.
        source: Where it came from.
        vocabulary: Number of different tokens; without it there is no token histogram.
    """
    facts = BatchFacts(
        input_hash=UNSET if input_hash is None else input_hash,
        batch_id=UNSET if batch_id is None else batch_id,
        source=UNSET if source is None else source,
    )
    inputs, targets = pair(batch)
    if hasattr(batch, "get"):
        targets = None  # whether the model shifts labels itself, only its code knows
    if inputs is not None and _is_tokens(inputs) and vocabulary:
        facts.token_histogram = token_histogram(inputs, vocabulary)
    if inputs is not None and _is_tokens(inputs) and len(inputs.shape) > 1 and inputs.shape[0] > 1:
        facts.duplicate_share = shortest(duplicate_share(inputs))
    if inputs is not None and targets is not None and _are_aligned(inputs, targets):
        shift, same = shift_match(inputs, targets), match(inputs, targets)
        facts.target_shift_match = UNSET if shift is None else shortest(shift)
        facts.target_equals_input = UNSET if same is None else shortest(same)
    return facts if facts != BatchFacts() else None


def shift_match(inputs: Array, targets: Array) -> float | None:
    """Return the share of counted targets equal to the next input, shapes (..., T); None where none is counted."""
    return match(inputs[..., 1:], targets[..., :-1])


def match(inputs: Array, targets: Array, *, ignored: int = IGNORED) -> float | None:
    """Return the share of counted targets equal to the input at their own place; None where none is counted."""
    counted = targets != ignored
    total = int(counted.sum())
    return int(((inputs == targets) & counted).sum()) / total if total else None


def duplicate_share(inputs: Array) -> float:
    """Return the share of sequences that are equal to an earlier one, shape (B, ...)."""
    rows = to_numpy(inputs)
    return 1 - len({row.tobytes() for row in rows}) / len(rows)


def token_count(batch: Any, *, ignored: int = IGNORED) -> int | None:
    """Return how many tokens of a batch the loss counts: its targets, else its inputs; None where it holds no tokens."""
    inputs, targets = pair(batch)
    if inputs is None or not _is_tokens(inputs):
        return None
    return int((targets != ignored).sum()) if targets is not None and _is_tokens(targets) else math.prod(inputs.shape)


def token_histogram(inputs: Array, vocabulary: int, *, buckets: int = BUCKETS) -> list[Number]:
    """Return how many input tokens fall into each bucket, token * buckets // vocabulary; a bucket a token if they fit."""
    buckets = min(buckets, vocabulary)
    places = to_numpy(inputs).reshape(-1).astype(np.int64) * buckets // vocabulary
    counts: list[Number] = np.bincount(places.clip(0, buckets - 1), minlength=buckets).tolist()
    return counts


def _is_array(part: Any) -> bool:
    return hasattr(part, "dtype") and hasattr(part, "shape")


def _is_tokens(array: Array) -> bool:
    return math.prod(array.shape) > 0 and dtype_name(array) in TOKEN_TYPES


def _are_aligned(inputs: Array, targets: Array) -> bool:
    return _is_tokens(inputs) and _is_tokens(targets) and inputs.shape == targets.shape and inputs.ndim > 0
