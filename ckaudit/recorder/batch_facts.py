"""Facts about batches: hash, relation of targets to inputs, token histogram, and whether a batch was seen before."""

import math
import re
import sys
from collections import deque
from functools import cache, lru_cache
from math import prod
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from ckaudit.contract.schema.checkpoint import BatchFacts
from ckaudit.contract.schema.loss_functions import LossFunctionStats
from ckaudit.contract.schema.numbers import Number
from ckaudit.recorder.files.scalar_log import values_backwards
from ckaudit.recorder.stats.arrays import Array, dense, dtype_name, library, to_numpy, to_wide_float
from ckaudit.recorder.stats.float32_rounding import shortest
from ckaudit.recorder.target_alignment import IGNORED, TOKEN_TYPES, relation

BUCKETS = 256
NUMBER_TYPES = ("float32", "float16", "bfloat16", "float64")
MIN_DISTINCT_NUMBERS = 8  # distinct numbers that make a row one of a kind
MIN_SHARE_OF_NUMBERS = 0.4  # share of distinct numbers in a batch of measured ones; 0.5 if the batch holds every row twice
MAX_COMPARED = 256  # elements compared of a long row
MAX_HASHED = 2**16  # elements hashed; a larger array is sampled evenly
MASK = 2**64 - 1
WORDS = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}
MAX_BATCHES = 2**16  # batches remembered, some 10 MB


BESIDE_INPUTS = re.compile(r"mask|observed|time_feat|static")
"""Names of arrays that accompany the inputs: masks, and the calendar and static features of a time series."""


def inputs_and_targets(batch: Any) -> tuple[Array | None, Array | None]:
    """Return inputs and targets of a batch: an array, a pair of them, or a mapping as tokenizers and processors make it.

    The inputs of a mapping are its tokens, else the largest array that is neither labels nor a mask, as for pictures or sound.
    Smaller arrays, such as the calendar of a series, describe a row and are the same in many rows.
    """
    if isinstance(batch, tuple | list):
        parts = list(batch)
        inputs, targets, *_ = (*parts, None, None)
        return _readable(inputs), _readable(targets)
    if _is_array(batch):
        return _readable(batch), None
    if hasattr(batch, "get"):
        named = ((str(name), part) for name, part in batch.items() if _is_array(part))
        others = [part for name, part in named if name != "labels" and not BESIDE_INPUTS.search(name)]
        tokens = batch.get("input_ids")
        inputs = max(others, key=lambda part: math.prod(part.shape), default=None) if tokens is None else tokens
        return _readable(inputs), _readable(batch.get("labels"))
    return None, None


def _readable(part: Any) -> Array | None:
    """Return an array of NumPy or torch unchanged, one of another library, such as JAX, as NumPy's; None for anything else."""
    if not _is_array(part):
        return None
    return part if isinstance(part, np.ndarray) or hasattr(part, "requires_grad") else np.asarray(part)


def batch_hash(batch: Any) -> str | None:
    """Return a hash of the inputs; None if the batch has none."""
    inputs = inputs_and_targets(batch)[0]
    return None if inputs is None else name_of(int(fingerprint(inputs)), inputs.shape)


def batch_facts(
    batch: Any,
    *,
    input_hash: str | None,
    batch_id: str | int | None,
    source: str | None,
    vocabulary: int | None,
    is_shifted_later: bool = False,
    loss_function: LossFunctionStats | UnsetType = UNSET,
) -> BatchFacts | None:
    """Return the facts of a batch; None if there are none.

    Args:
        batch: Inputs and targets in any form that `inputs_and_targets` takes. Only the targets of a pair are known to be those
            that the loss saw, unless the model shifts them.
        input_hash: The result of `batch_hash`.
        batch_id: The loader's name for the batch.
        source: The data source of the batch.
        vocabulary: Number of different tokens; without it there is no token histogram.
        is_shifted_later: Whether the model shifts labels itself: the labels of a mapping, and labels that equal the inputs.
        loss_function: The arguments of this step's loss function, if they were seen. If targets equal inputs and the loss had one
            target less per row, the loop or the model shifts them. With any other number, the targets are not those of the batch.
    """
    facts = BatchFacts(
        input_hash=UNSET if input_hash is None else input_hash,
        batch_id=UNSET if batch_id is None else batch_id,
        source=UNSET if source is None else source,
    )
    inputs, targets = inputs_and_targets(batch)
    _describe(facts, inputs, vocabulary)
    if inputs is not None and len(inputs.shape) > 1 and inputs.shape[0] > 1 and _tells_rows_apart(inputs):
        facts.duplicate_share = shortest(duplicate_share(inputs))
    if inputs is not None and targets is not None and _are_aligned(inputs, targets):
        asked = loss_function.targets if isinstance(loss_function, LossFunctionStats) else UNSET
        shift, same = relation(inputs, targets, hasattr(batch, "get"), asked or None, is_shifted_later=is_shifted_later)
        facts.target_shift_match = UNSET if shift is None else shortest(shift)
        facts.target_equals_input = UNSET if same is None else shortest(same)
    return facts if facts != BatchFacts() else None


def add_seen_match(
    facts: BatchFacts, batch: Any, *, inputs: float | None, embedded: float | None, same: float | None, min_share: float = 0.5
) -> None:
    """Add how the targets relate to the tokens that the model was seen to read.

    The batch alone may not show that targets are the next tokens, for example if the loss ignores some of them. The model's own
    inputs can show it. They cannot show the opposite: targets may follow from other inputs.

    Args:
        facts: The facts of the batch; changed in place.
        batch: Inputs and targets, as `inputs_and_targets` takes them.
        inputs: Share of the targets that are the next token of the model's first argument.
        embedded: The largest share that are the next token of an embedding's input.
        same: The largest share that equal the embedding's input at the same position.
        min_share: Share from which on the targets count as next tokens.
    """
    if embedded is not None:
        facts.embedded_shift_match = shortest(embedded)
    if same is not None:
        facts.target_equals_embedded = shortest(same)
    has_targets = inputs_and_targets(batch)[1] is not None
    if has_targets and facts.target_shift_match is UNSET and inputs is not None and inputs >= min_share:
        facts.target_shift_match = shortest(inputs)


def input_facts(inputs: Array | None, vocabulary: int | None) -> BatchFacts | None:
    """Return the facts that the inputs of a model show of a batch; None if there are none.

    Args:
        inputs: The model's first argument, which need not be rows of a data set.
        vocabulary: Number of different tokens.
    """
    facts = BatchFacts()
    _describe(facts, inputs, vocabulary)
    return facts if facts != BatchFacts() else None


def _describe(facts: BatchFacts, inputs: Array | None, vocabulary: int | None) -> None:
    """Add the token histogram, or mean and standard deviation of numbers."""
    if inputs is not None and _is_tokens(inputs) and vocabulary:
        facts.token_histogram = token_histogram(inputs, vocabulary)
    if inputs is not None and dtype_name(inputs) in NUMBER_TYPES and math.prod(inputs.shape):
        facts.input_mean, facts.input_std = map(shortest, mean_and_std(inputs))


def embedded_words(model: Any) -> int | None:
    """Return the vocabulary size of a model's input embedding, else of its first embedding; None if it has none."""
    given = getattr(model, "get_input_embeddings", None)
    try:
        embedding = given() if callable(given) else None
    except (AttributeError, NotImplementedError):  # a vision model inherits the method and has no embedding to return
        embedding = None
    modules = [embedding] if embedding is not None else model.modules()
    return next((module.num_embeddings for module in modules if hasattr(module, "num_embeddings")), None)


def mean_and_std(inputs: Array) -> tuple[float, float]:
    """Return mean and population standard deviation of numbers; NaN if one of them is not finite.

    More than `MAX_HASHED` elements are sampled evenly, so that a batch of pictures does not leave the accelerator.
    """
    flat = dense(inputs).reshape(-1)
    values = to_numpy(to_wide_float(flat[:: max(1, -(-flat.shape[0] // MAX_HASHED))])).astype(np.float64, copy=False)
    with np.errstate(all="ignore"):
        return float(values.mean()), float(values.std())


def _tells_rows_apart(inputs: Array) -> bool:
    """Return whether equal rows are duplicates: this holds for tokens, for rows of many numbers, and for measured numbers.

    Hardly any two measured numbers are equal, even if half of a batch repeats the other half. Many counts and codes are.
    """
    if _is_tokens(inputs):
        return True
    if dtype_name(inputs) not in NUMBER_TYPES:
        return False
    if math.prod(inputs.shape[1:]) >= MIN_DISTINCT_NUMBERS:
        return True
    numbers = to_numpy(to_wide_float(inputs[:MAX_COMPARED])).reshape(-1)
    return len(np.unique(numbers)) >= MIN_SHARE_OF_NUMBERS * numbers.size


def duplicate_share(inputs: Array) -> float:
    """Return the share of rows (B, ...) that equal an earlier row; of rows of numbers, a sample of elements is compared.

    Long rows with few distinct numbers, such as an empty picture or a one-hot row, do not count as copies.
    """
    if _is_tokens(inputs):
        rows = to_numpy(inputs)
        return 1 - len({row.tobytes() for row in rows}) / len(rows)
    flat = inputs.reshape(inputs.shape[0], -1)
    sample = to_numpy(to_wide_float(flat[:, :: -(-flat.shape[1] // MAX_COMPARED)]))
    min_distinct = MIN_DISTINCT_NUMBERS if flat.shape[1] >= MIN_DISTINCT_NUMBERS else 0
    varied = [row.tobytes() for row in sample if len(np.unique(row)) >= min_distinct]
    return (len(varied) - len({*varied})) / len(sample)


def token_count(batch: Any, *, ignored: int = IGNORED) -> int | None:
    """Return how many tokens of a batch the loss counts: its targets, else its inputs; None if it holds no tokens."""
    inputs, targets = inputs_and_targets(batch)
    if inputs is None or not _is_tokens(inputs):
        return None
    return int((targets != ignored).sum()) if targets is not None and _is_tokens(targets) else math.prod(inputs.shape)


def token_histogram(inputs: Array, vocabulary: int, *, buckets: int = BUCKETS) -> list[Number]:
    """Return how many input tokens fall into each bucket, token * buckets // vocabulary; one token per bucket if they fit."""
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


# A fast hash of a batch that is the same on every device: the sum of its elements, each times a random number for its position.
def fingerprint(array: Array) -> Array | int:
    r"""Return a 64-bit hash of an array's bits; on an accelerator, a tensor that stays there.

    $$\sum_i x_i r_i \bmod 2^{64}$$

    over the elements' bits as integers, with random odd r (multilinear hashing, Carter & Wegman 1979): two different arrays of
    one shape collide with probability 2^-63. More than `MAX_HASHED` elements are sampled evenly.

    It costs a fifth of a cryptographic hash and runs on the device of the batch, so that nothing waits for it.
    """
    if isinstance(array, np.ndarray):
        return _here(dense(array).reshape(-1))
    torch = library(array)
    is_plain = array.dtype == torch.int64 and type(array) is torch.Tensor  # the usual form of tokens
    values = (array if is_plain else dense(array)).reshape(-1)
    if values.shape[0] > MAX_HASHED:
        values = values[:: -(-values.shape[0] // MAX_HASHED)]
    if not is_plain:
        values = values.view(getattr(torch, WORDS[values.dtype.itemsize])).long()
    if values.is_cpu:
        return torch.dot(values, _weights_on("cpu", values.shape[0]))
    # CUDA has no integer dot product.
    return (values * _weights_on(values.device, values.shape[0])).sum()


def row_fingerprints(array: Array) -> Array:
    """Return the `fingerprint` of each row of an array (B, ...), as 64-bit integers on its device, shape (B,)."""
    rows = dense(array).reshape(len(array), -1)
    rows = rows[:, :: -(-rows.shape[1] // MAX_HASHED)]
    if isinstance(rows, np.ndarray):
        return np.array([_here(row) for row in rows])
    torch = library(rows)
    if rows.dtype != torch.int64:
        rows = rows.contiguous().view(getattr(torch, WORDS[rows.dtype.itemsize])).long()
    return (rows * _weights_on(rows.device, rows.shape[1])).sum(1)


def name_of_tokens(tokens: Array) -> str:
    """Return `name_of` the `fingerprint` of an int64 torch tensor of tokens in CPU memory, with few calls."""
    shape = tokens.shape
    weights, of_shape = _weights_for(shape)
    if weights is None:
        return name_of(int(fingerprint(tokens)), shape)
    return f"sum64:{tokens.reshape(-1).dot(weights).item() + of_shape & MASK:016x}"


def _here(values: NDArray[Any]) -> int:
    if values.dtype.itemsize not in WORDS:
        values = np.ascontiguousarray(values).view(np.uint8)
    values = values[:: max(1, -(-values.shape[0] // MAX_HASHED))]
    words = values.view(WORDS[values.dtype.itemsize]).astype(np.int64, copy=False)
    return int(np.dot(words, _weights()[: len(words)]))


def name_of(number: int, shape: tuple[int, ...]) -> str:
    """Return a `fingerprint` in the form that the contract writes, with the shape of the array mixed in.

    >>> name_of(-1, (2, 3))
    'sum64:4e68904c31b4d5e4'
    """
    return f"sum64:{number + _of_shape(shape) & MASK:016x}"


@lru_cache
def _of_shape(shape: tuple[int, ...]) -> int:
    return sum(map(mul, shape, map(int, _weights()[MAX_HASHED:])))


@lru_cache(maxsize=8)
def _weights_for(shape: tuple[int, ...]) -> tuple[Array | None, int]:
    """Return the factors of tokens of this shape, None if they are too many, and the number to add for the shape."""
    count = prod(shape)
    return None if count > MAX_HASHED else _weights_on("cpu", count), _of_shape(shape)


@lru_cache(maxsize=8)
def _weights_on(device: Any, count: int) -> Array:
    return sys.modules["torch"].as_tensor(_weights()[:count], device=device)


@cache
def _weights() -> NDArray[np.int64]:
    """Return `MAX_HASHED` + 64 odd pseudo-random numbers, shape (N,): SplitMix64 of their positions (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        mixed = np.arange(1, MAX_HASHED + 65, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31)) | np.uint64(1)).view(np.int64)


# Batches seen before: they show a loader that repeats a batch, or that started over at a resume.
class BatchesSeen:
    """Remembers the hash of every batch, including those of earlier sessions.

    Args:
        max_batches: Batches to remember; older ones count as never seen.
    """

    def __init__(self, *, max_batches: int = MAX_BATCHES) -> None:
        self._most = max_batches
        self._last: dict[str, int] = {}
        self._order: deque[tuple[int, str]] = deque()
        self._repeats = False
        self._held: Array | None = None

    def recall(self, lines: Path, *, until: int) -> None:
        """Remember the logged batches of the steps up to a resume; steps that a resume replaced do not count."""
        hashes = values_backwards(lines, "batch_hash", until=until, max_values=self._most)
        for step, value in sorted(hashes.items()):
            self.observe(step, str(value))

    def observe(self, step: int, name: str | None) -> int | None:
        """Remember the hash of one more batch, and return how many steps ago the same inputs were seen; None: never."""
        if name is None:
            return None
        before = self._last.get(name)
        self._last[name] = step
        self._order.append((step, name))
        if len(self._order) > self._most:
            old, gone = self._order.popleft()
            if self._last.get(gone) == old:
                del self._last[gone]
        self._repeats = before == step - 1
        return None if before is None else step - before

    def is_reused(self, inputs: Array | None) -> bool:
        """Return whether a step's inputs reuse the memory of the step before; a loader makes new tensors.

        Repeated inputs are kept for one step, so that the allocator cannot give their memory to other inputs.
        """
        held, self._held = self._held, inputs if self._repeats else None
        return held is not None and inputs is not None and (held is inputs or _address(held) == _address(inputs))


def _address(array: Array) -> int:
    return int(array.ctypes.data if isinstance(array, np.ndarray) else array.data_ptr())
