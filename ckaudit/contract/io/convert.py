"""One checkpoint from any encoding of the contract into any other; what the contract does not know stays as it is."""

import json
import math
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct

from ckaudit.contract import violations
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.decode import decode
from ckaudit.contract.io.encode import encode, significant
from ckaudit.contract.io.files import BrokenFile
from ckaudit.contract.io.grids import GridEncoding, encode_grid, encode_grids, unpack
from ckaudit.contract.schema.checkpoint import PackedGrid
from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Finding

HistogramEncoding = Literal["range", "edges"]
SPREAD = ("weights", "gradients", "activations")
GRID = "sampled_grid_32x32"
QK_GRIDS = ("sampled_qk_grid_32x32_per_head", "sampled_qk_grid_32x32")

Document = dict[str, Any]


class Encoding(Struct, frozen=True, kw_only=True):
    """How a checkpoint is to be written; None keeps what the file has.

    Attributes:
        grids: As "q8" bytes, off by half a step, (max - min) / 510, at most; as "nested" numbers; or "none" at all.
        histogram: Bins as one "range" where they are equally wide, or as "edges".
        digits: Significant digits of nested grids, edges and percentiles; None: all there are.
        suffix: ".json", ".json.gz" or ".json.zst".
    """

    grids: GridEncoding | None = None
    histogram: HistogramEncoding | None = None
    digits: int | None = None
    suffix: str = ".json"


def convert(data: bytes, file: str, encoding: Encoding) -> bytes:
    """Return a checkpoint in another encoding.

    Args:
        data: Its text, unpacked.
        file: Its name in findings.
        encoding: How to write it.

    Raises:
        BrokenFile: If it is no checkpoint, or would lose something, with the finding that says what.
    """
    checked = check_checkpoint(data, file)
    lossy = [finding for finding in checked.findings if finding.code == violations.DUPLICATE_KEY.code]
    if checked.document is None or lossy:
        raise BrokenFile((lossy or checked.findings)[0])
    text = decode(data, msgspec.json.Decoder(msgspec.Raw)).text
    # Python's own parser keeps integers of any length and every float to the bit.
    document: Document = json.loads(text)
    try:
        rewrite(document, encoding)
        return encode(document, encoding.suffix)
    except (ValueError, OverflowError) as error:
        raise BrokenFile(_unwritable(file, error)) from None


def _unwritable(file: str, error: Exception) -> Finding:
    return violations.WRONG_TYPE.at(file, f"cannot be written in another encoding: {error}")


def rewrite(document: Document, encoding: Encoding) -> None:
    """Change grids, histograms and percentiles of a plain document in place; nothing else is touched."""
    lost = [path for path, entry, name in _grids(document) if _rewrite_grid(entry, name, encoding)]
    if lost:
        document["left_out"] = list(dict.fromkeys([*document.get("left_out", []), *lost]))
    for section in SPREAD:
        for entry in document.get(section, {}).values():
            if "histogram" in entry:
                entry["histogram"]["bins"] = _bins(entry["histogram"], encoding)
            if "percentiles" in entry and encoding.digits is not None:
                entry["percentiles"] = rounded(entry["percentiles"], encoding.digits)


def _grids(document: Document) -> Iterator[tuple[str, Document, str]]:
    """Yield each grid as its path, the entry that holds it, and its name there."""
    for section in ("weights", "gradients"):
        yield from ((f"{section}.*.{GRID}", entry, GRID) for entry in document.get(section, {}).values() if GRID in entry)
    for entry in document.get("attention", {}).values():
        yield from ((f"attention.*.{name}", entry, name) for name in QK_GRIDS if name in entry)


def _rewrite_grid(entry: Document, name: str, encoding: Encoding) -> bool:
    """Write one grid anew, and tell whether it was left out."""
    if encoding.grids == "none":
        del entry[name]
        return True
    grid, held = entry[name], _encoding_of(entry[name])
    kind = encoding.grids or held
    if kind != "mixed" and (kind != held or (kind == "nested" and encoding.digits is not None)):
        write = encode_grids if name in QK_GRIDS else encode_grid
        entry[name] = msgspec.to_builtins(write(unpack(_typed(grid)), kind, encoding.digits))
    return False


def _encoding_of(grid: Any) -> Literal["q8", "nested", "mixed"]:
    """Return how a grid, or a stack of them, is written."""
    packed = [isinstance(matrix, dict) for matrix in ([grid] if isinstance(grid, dict) else grid)]
    return "nested" if not any(packed) else "q8" if all(packed) else "mixed"


def _typed(grid: Any) -> Any:
    if isinstance(grid, dict):
        return msgspec.convert(grid, PackedGrid)
    if any(isinstance(matrix, dict) for matrix in grid):
        return [unpack(_typed(matrix)) for matrix in grid]
    return grid


def _bins(histogram: Document, encoding: Encoding) -> Any:
    """Return the bins of a histogram as they are to be written."""
    bins, count = histogram["bins"], len(histogram["counts"])
    if encoding.histogram == "edges" and isinstance(bins, dict):
        low, high = map(float, bins["range"])
        # Between ends that are not finite, or too far apart, there are no edges.
        bins = np.linspace(low, high, bins["count"] + 1).tolist() if math.isfinite(high - low) else bins
    elif encoding.histogram == "range" and isinstance(bins, list):
        ends = equal_range(bins, count, encoding.digits)
        bins = bins if ends is None else {"range": list(ends), "count": count}
    if encoding.digits is None or isinstance(bins, dict):
        return bins
    shorter = rounded(bins, encoding.digits)
    # Edges that would fall together keep their digits.
    return shorter if len(set(shorter)) == len(set(bins)) else bins


def equal_range(bins: list[Number], count: int, digits: int | None, *, tolerance: float = 1e-9) -> tuple[float, float] | None:
    """Return the ends of equally wide bins; None where they are not, so that a range would lose something.

    Args:
        bins: Their n+1 edges or n centres.
        count: Their number, n.
        digits: Digits that the bins were rounded to, or may be.
        tolerance: Distance from an equally spaced place over the width of all bins.

    >>> equal_range([0.0, 0.5, 1.0], 2, None), equal_range([0.25, 0.75], 2, None), equal_range([0.0, 0.1, 1.0], 2, None)
    ((0.0, 1.0), (0.0, 1.0), None)
    """
    places = np.array(bins, dtype=np.float64)
    if len(places) < 2 or not np.isfinite(places).all() or not places[-1] > places[0]:
        return None
    off = np.abs(places - np.linspace(places[0], places[-1], len(places)))
    allowed = np.full(len(places), tolerance * (places[-1] - places[0]))
    if digits is not None:
        allowed = np.maximum(allowed, 10.0 ** (1 - digits) * np.abs(places).max())
        allowed = np.minimum(allowed, (places[-1] - places[0]) / (4 * len(places)))
    if (off > allowed).any():
        return None
    half = (places[-1] - places[0]) / (len(places) - 1) / 2 if len(places) == count else 0.0
    return float(places[0] - half), float(places[-1] + half)


def rounded(values: list[Number], digits: int) -> list[Number]:
    """Return numbers with so many significant digits, and words as they are."""
    return [value if isinstance(value, str) or not math.isfinite(value) else significant([value], digits)[0] for value in values]
