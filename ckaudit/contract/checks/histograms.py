"""Histograms: ascending bins, as many counts as bins, all elements counted, and none outside the extremes."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf, isfinite, isnan, prod
from typing import Any

from msgspec import UNSET, UnsetType

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, check
from ckaudit.contract.checks.norms import numels
from ckaudit.contract.io.columns import Column, SectionColumns
from ckaudit.contract.schema.checkpoint import BinRange, Histogram
from ckaudit.contract.schema.report import Finding

SECTIONS = ("weights", "gradients", "activations")


@check(
    kinds.BINS_DESCEND,
    kinds.BINS_AND_COUNTS,
    kinds.COUNTED_OUTSIDE,
    kinds.COUNTS_TOTAL,
    reads=(
        *(f"{section}.*.{name}" for section in SECTIONS for name in ("histogram", "min", "max", "nonfinite_count")),
        *(f"{section}.*.{name}" for section in SECTIONS[:2] for name in ("sampled", "numel")),
        "activations.*.shape",
        "activations.*.sampled",
    ),
)
def histogram(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """Each histogram fits its tensor.

    Args:
        subject: The checkpoint.
        rounding: Error of edges and extremes relative to the largest of them: numbers of four digits differ by up to 1e-3.
    """
    for section in SECTIONS:
        table = subject.table(section)
        if "histogram" not in table.columns:
            continue
        min_totals, max_totals = totals(subject, section, table)
        lows, highs = table.numbers("min", -inf), table.numbers("max", inf)
        if "histogram" in table.complete and _all_fit(table.columns["histogram"], lows, highs, min_totals, max_totals):
            continue
        for name, shown, *limits in zip(
            table.names, table.columns["histogram"], min_totals, max_totals, lows, highs, strict=True
        ):
            if shown is not UNSET:
                yield from _judge(subject, (section, name, "histogram"), shown, limits, rounding)


def totals(subject: CheckInput, section: str, table: SectionColumns) -> tuple[Sequence[float], Sequence[float]]:
    """Return the smallest and the largest total that each histogram can have."""
    if section == "activations":
        # Non-finite elements may be among the sampled ones, so no total is too small.
        both = zip(*(table.columns.get(name, (UNSET,) * len(table.names)) for name in ("sampled", "shape")), strict=True)
        max_totals = [(inf if shape is UNSET else prod(shape)) if sampled is UNSET else sampled for sampled, shape in both]
        return [0.0] * len(max_totals), max_totals
    sizes = numels(subject, section)
    if "sampled" in table.columns:
        seen = zip(table.columns["sampled"], sizes, strict=True)
        sizes = [size if type(sampled) is UnsetType else sampled for sampled, size in seen]
    lost = table.numbers("nonfinite_count", 0.0)
    if isnan(sum(sizes)):
        max_totals = [inf if isnan(size) else size for size in sizes]
        return [0.0 if isnan(size) else size - count for size, count in zip(sizes, lost, strict=True)], max_totals
    if "nonfinite_count" not in table.columns:
        return sizes, sizes
    return [size - count for size, count in zip(sizes, lost, strict=True)], sizes


def _all_fit(
    column: Column, lows: Sequence[float], highs: Sequence[float], smallest: Sequence[float], largest_values: Sequence[float]
) -> bool:
    """Tell whether all histograms have equal bins within the extremes that count every element: the usual case."""
    try:
        for shown, low, high, fewest, largest in zip(column, lows, highs, smallest, largest_values, strict=True):
            bins, counts = shown.bins, shown.counts
            if type(bins) is not BinRange or len(counts) != bins.count:
                return False
            ends: Any = bins.range
            start, end = ends
            if not (low <= start <= end <= high and fewest <= sum(counts) <= largest):
                return False
    except TypeError:  # words among the numbers
        return False
    return True


def _judge(
    subject: CheckInput, place: tuple[str, str, str], shown: Histogram, limits: list[float], rounding: float
) -> Iterator[Finding]:
    """Check one histogram: the order of its bins, then their number, then their counts.

    Args:
        subject: The checkpoint.
        place: Path of the histogram.
        shown: The histogram.
        limits: Smallest and largest total, smallest and largest element.
        rounding: Relative error of edges and extremes.
    """
    bins = shown.bins
    given = bins.range if isinstance(bins, BinRange) else bins
    if any(isinstance(value, str) for value in given) or any(isinstance(value, str) for value in shown.counts):
        return
    edges: list[Any] = given
    if any(before > after for before, after in pairwise(edges)):
        yield subject.find(kinds.BINS_DESCEND, (*place, "bins"), "ascending", "not in order", where=place[1])
        return
    asked = [bins.count] if isinstance(bins, BinRange) else [len(edges), len(edges) - 1]
    if len(shown.counts) not in asked:
        wanted = " or ".join(str(number) for number in sorted(asked))
        yield subject.find(kinds.BINS_AND_COUNTS, (*place, "counts"), f"{wanted} counts", f"{len(shown.counts)} counts")
    elif shown.counts:
        yield from _judge_counts(subject, place, shown, limits, rounding)


def _judge_counts(
    subject: CheckInput, place: tuple[str, str, str], shown: Histogram, limits: list[float], rounding: float
) -> Iterator[Finding]:
    """Check the positions and the total of a histogram's counts; the arguments are those of `_judge`."""
    min_total, max_total, low, high = limits
    edges = edges_of(shown)
    counts: list[Any] = shown.counts
    slack = rounding * max((abs(bound) for bound in (edges[0], edges[-1], low, high) if isfinite(bound)), default=0.0)
    for index, count in enumerate(counts if low <= high else ()):
        if count > 0 and (edges[index + 1] < low - slack or edges[index] > high + slack):
            expected = f"0: every element is between {low:.6g} and {high:.6g}"
            yield subject.find(kinds.COUNTED_OUTSIDE, (*place, "counts", index), expected, count)
            return
    total = sum(counts)
    covered = edges[0] <= low + slack and edges[-1] >= high - slack
    # Bins that do not reach the extremes may miss elements; no histogram may count more than there are.
    if total > max_total or (total < min_total and covered):
        expected = f"{max_total:.6g} in sum" if min_total == max_total else f"{min_total:.6g} to {max_total:.6g} in sum"
        yield subject.find(kinds.COUNTS_TOTAL, (*place, "counts"), expected, float(total))


def edges_of(shown: Histogram) -> list[float]:
    """Return the n+1 edges of a histogram for any form of its bins. Shape (n+1,).

    >>> edges_of(Histogram(bins=[1.0, 2.0, 3.0], counts=[4, 5, 6]))
    [0.5, 1.5, 2.5, 3.5]
    """
    bins: Any = shown.bins
    if isinstance(bins, BinRange):
        low, high = float(bins.range[0]), float(bins.range[1])
        return [low + (high - low) * index / bins.count for index in range(bins.count + 1)]
    if len(bins) != len(shown.counts):
        return list(bins)
    inner = [(before + after) / 2 for before, after in pairwise(bins)]
    return [2 * bins[0] - inner[0], *inner, 2 * bins[-1] - inner[-1]] if inner else [-inf, inf]
