"""The bounds of the ordinary checks, tested on the packed columns of many files at once.

A proof has the name of its check and the same tolerances. It may be stricter, never laxer: it returns the files that the check
itself must read.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature

import numpy as np

from ckaudit.contract.bulk.column_store import Bools, FileBlock, Floats
from ckaudit.contract.bulk.specialized_decoder import FieldKey, SpecializedDecoder
from ckaudit.contract.checks import CheckFunction, MeaningCheck, forward_pass, grids, histograms, norms, shares, tensors
from ckaudit.contract.schema.checkpoint import GRID, QK_GRIDS

KEPT = frozenset(
    {"shape", "dtype", "numel", "sampled", "nonfinite_count", "placement", "heads", "kv_heads", "keys", "kind_per_head"}
)
Proof = Callable[[FileBlock], Bools]
TENSORS = ("weights", "gradients")


def provable(check: MeaningCheck, decoder: SpecializedDecoder, columns: set[FieldKey]) -> bool:
    """Tell whether all inputs of a check are packed or constant over the files."""
    packed = {(name, field) for name, section in decoder.sections.items() for field in section.packed}
    return check.function in PROOFS and all(place in packed or place[1] in KEPT or place[1] in grids.FIELDS for place in columns)


@cache
def limit(check: CheckFunction, name: str) -> float:
    """Return the default tolerance of a check."""
    return float(signature(check).parameters[name].default)


def _any(wrong: Bools) -> Bools:
    """Return which files have anything wrong."""
    return np.array(wrong.reshape(len(wrong), -1).any(axis=1))


def _slack(block: FileBlock, section: str, rounding: float) -> tuple[Floats, Floats]:
    """Return the extremes of each tensor, widened by the rounding error."""
    low, high = block.get(section, "min", -np.inf), block.get(section, "max", np.inf)
    largest = np.maximum(*(np.where(np.isfinite(end), np.abs(end), 0.0) for end in (low, high)))
    return low - rounding * largest, high + rounding * largest


def order(block: FileBlock) -> Bools:
    """Percentiles ascend between the extremes, and are not the levels themselves."""
    wrong = block.none()
    for section in TENSORS:
        low, high = block.get(section, "min", -np.inf), block.get(section, "max", np.inf)
        wrong |= _any(low > high)
        if block.has(section, "percentiles"):
            values = block.get(section, "percentiles").reshape(block.files, -1, 7)
            middle, (lower, upper) = values[:, :, 3], _slack(block, section, limit(tensors.order, "rounding"))
            wrong |= _any(np.diff(values, axis=2) < 0) | _any((middle == 0.5) | (middle == 50.0))
            wrong |= _any(values[:, :, 0] < lower) | _any(values[:, :, 6] > upper)
    return wrong


def spread(block: FileBlock) -> Bools:
    """The mean lies between the extremes, and the standard deviation is at most half of their distance."""
    wrong = block.none()
    for section in (*TENSORS, "activations"):
        low, high = block.get(section, "min", -np.inf), block.get(section, "max", np.inf)
        mean, std = block.get(section, "mean", np.nan), block.get(section, "std", 0.0)
        lower, upper = _slack(block, section, limit(tensors.spread, "rounding"))
        wrong |= _any((mean < lower) | (mean > upper) | (std > (high - low) / 2))
    return wrong


def nothing(block: FileBlock) -> Bools:
    """Packing alone proves the check: there are no words among the numbers, and lists have the known lengths."""
    return block.none()


def dtype(block: FileBlock) -> Bools:
    """No extreme exceeds the largest number of its type."""
    wrong = block.none()
    for section in (*TENSORS, "activations"):
        largest = block.layout.largest.get(section, np.inf) * (1 + limit(tensors.dtype, "rounding"))
        wrong |= _any(np.abs(block.get(section, "min", 0.0)) > largest) | _any(np.abs(block.get(section, "max", 0.0)) > largest)
    return wrong


def norm(block: FileBlock) -> Bools:
    """The sum of squares follows from size, mean and standard deviation; no element exceeds the norm."""
    wrong = block.none()
    precision = limit(norms.norm, "precision")
    for section, field in norms.NORMS.items():
        if not block.has(section, field):
            continue
        length, size = block.get(section, field), block.layout.sizes[section]
        mean, std = block.get(section, "mean", np.nan), block.get(section, "std", np.nan)
        low, high = block.get(section, "min", 0.0), block.get(section, "max", 0.0)
        reach, squares = length * (1 + precision), size * (mean * mean + std * std)
        wrong |= _any((low < -reach) | (high > reach))
        unknown = np.isnan(size) | np.isnan(mean) | np.isnan(std)
        wrong |= _any(~unknown & ~(((length * (1 - precision)) ** 2 <= squares) & (squares <= reach**2)))
        if unknown.any():
            largest = np.maximum(np.abs(low), np.abs(high))
            wrong |= _any(unknown & (length > largest * np.sqrt(size)) & (largest > 0))
    return wrong


def second_moment(block: FileBlock) -> Bools:
    """The sum of squared deviations is size times variance, in the population's convention."""
    wrong = block.none()
    precision, exact = (limit(norms.second_moment, name) for name in ("precision", "exact"))
    for section in norms.NORMS:
        if block.has(section, "m2") and block.has(section, "std"):
            m2, size = block.get(section, "m2"), block.layout.counted[section]
            square = block.get(section, "std") ** 2
            far = np.abs(m2 - size * square)
            wrong |= _any((np.abs(m2 - (size - 1) * square) <= exact * m2) & (exact * m2 < far))
            wrong |= _any((size > 0) & (far > precision * np.maximum(m2, size * square)))
    return wrong


def spectral(block: FileBlock) -> Bools:
    """The largest singular value is at most the Frobenius norm."""
    upper = block.get("weights", "frobenius_norm", np.inf) * (1 + limit(norms.spectral, "precision"))
    return _any(block.get("weights", "spectral_norm", 0.0) > upper)


def relative(block: FileBlock) -> Bools:
    """Relative movement is movement over norm, before or after the update."""
    moved, share = block.get("weight_deltas", "norm", np.nan), block.get("weight_deltas", "relative", np.nan)
    if not block.has("weights", "frobenius_norm") or np.isnan(moved).all() or np.isnan(share).all():
        return block.none()
    if not block.layout.same_names:
        return ~block.none()
    length, precision = block.get("weights", "frobenius_norm"), limit(norms.relative, "precision")
    lower, upper = moved * (1 - precision), moved * (1 + precision)
    close = (lower <= share * length) & (share * length <= upper)
    return _any(~close & ((share * (length + moved) < lower) | (share * (length - moved) > upper)))


def histogram(block: FileBlock) -> Bools:
    """Bins ascend within the extremes and count every element."""
    wrong = block.none()
    for section in histograms.SECTIONS:
        if block.has(section, "counts"):
            ends = block.get(section, "range").reshape(block.files, -1, 2)
            total = block.get(section, "counts")
            min_total, max_total = block.layout.totals[section]
            low, high = _slack(block, section, limit(histograms.histogram, "rounding"))
            wrong |= _any((ends[:, :, 0] < low) | (ends[:, :, 0] > ends[:, :, 1]) | (ends[:, :, 1] > high))
            wrong |= _any(~((min_total <= total) & (total <= max_total)))
    return wrong


def share(block: FileBlock) -> Bools:
    """Shares are within 0 to 1."""
    rounding = limit(shares.share, "rounding")
    wrong = block.none()
    for section, fields in (*shares.TABLE_SHARES.items(), ("attention", shares.HEAD_SHARES)):
        for field in fields:
            values = block.get(section, field, 0.0)
            wrong |= _any((values < -rounding) | (values > 1 + rounding))
    return wrong


def similarity(block: FileBlock) -> Bools:
    """A cosine is within -1 to 1."""
    upper = 1 + limit(shares.similarity, "rounding")
    return _any(np.abs(block.get("attention", "nearest_similarity_per_head", 0.0)) > upper)


def entropy(block: FileBlock) -> Bools:
    """Entropies keep the bounds of their definition."""
    if not block.has("attention", "entropy_per_head"):
        return block.none()
    values, part = block.get("attention", "entropy_per_head"), block.get("attention", "normalized_entropy_per_head", 1.0)
    top = block.get("attention", "max_attn_per_head", 1.0)
    if any(values_of_heads.size > 1 and values_of_heads.shape != values.shape for values_of_heads in (part, top)):
        return ~block.none()
    return _any(~((values >= 0) & (values <= block.layout.entropies * part) & (np.exp(-np.abs(values)) <= top)))


def root_mean_square(block: FileBlock) -> Bools:
    """The mean square is the square of the mean plus the variance."""
    precision = limit(forward_pass.root_mean_square, "precision")
    mean, std = block.get("activations", "mean", np.nan), block.get("activations", "std", np.nan)
    rms, middle = block.get("activations", "rms", np.nan), block.get("activations", "mean_abs", np.nan)
    full = np.hypot(mean, std)
    return _any(
        (np.abs(rms - full) > precision * full) | (middle < np.abs(mean) * (1 - precision)) | (middle > rms * (1 + precision))
    )


def percentiles(block: FileBlock) -> Bools:
    """The median is at most the 99th percentile."""
    upper = block.get("activations", "p99", np.inf) * (1 + limit(forward_pass.percentiles, "rounding"))
    return _any(block.get("activations", "p50", 0.0) > upper)


def tensor_grid(block: FileBlock) -> Bools:
    """A grid lies between the extremes of its tensor."""
    wrong = block.none()
    for section in grids.SECTIONS:
        if (grid_block := block.grid_block(section, GRID)) is not None:
            ends = _slack(block, section, limit(grids.tensor_grid, "rounding"))
            low, high = (np.broadcast_to(end, block.shape(section)) for end in ends)
            place = grid_block.files, grid_block.entries
            wrong[grid_block.files[(grid_block.low < low[place]) | (grid_block.high > high[place])]] = True
    return wrong


def attention_grid(block: FileBlock) -> Bools:
    """No probability is negative, and no row sums above 1."""
    wrong, max_mass = block.none(), 1 + limit(grids.attention_grid, "rounding")
    for field in QK_GRIDS:
        if (grid_block := block.grid_block("attention", field)) is not None:
            wrong[grid_block.files[(grid_block.low < 0) | (grid_block.mass > max_mass)]] = True
    return wrong


PROOFS: dict[CheckFunction, Proof] = {
    tensors.order: order,
    tensors.spread: spread,
    tensors.extremes: nothing,
    tensors.dtype: dtype,
    norms.norm: norm,
    norms.second_moment: second_moment,
    norms.spectral: spectral,
    norms.relative: relative,
    histograms.histogram: histogram,
    shares.share: share,
    shares.similarity: similarity,
    forward_pass.heads: nothing,
    forward_pass.entropy: entropy,
    forward_pass.root_mean_square: root_mean_square,
    forward_pass.percentiles: percentiles,
    grids.tensor_grid: tensor_grid,
    grids.attention_grid: attention_grid,
}
