"""Sections of a checkpoint that hold one entry per parameter tensor: weights, gradients and their movement."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Number, doc

PERCENTILE_LEVELS = (1, 5, 25, 50, 75, 95, 99)

Percentiles = Annotated[list[Number], Meta(min_length=7, max_length=7)]
Shape = Annotated[list[Count], doc("Size of the tensor along each dimension.", unit="elements", shape="(D,)")]
Placement = Literal["replicated", "shard", "partial"]


class BinRange(Struct, gc=False):
    """Bins of equal width, without writing their edges."""

    range: Annotated[list[Number], Meta(min_length=2, max_length=2), doc("Lower and upper end of all bins.", shape="(2,)")]
    count: Annotated[int, Meta(ge=1), doc("How many bins of equal width.", unit="bins")]


class Histogram(Struct, gc=False):
    """How the values of a tensor are distributed."""

    bins: Annotated[
        BinRange | list[Number], doc("n+1 edges, or n centres, or the range and number of equal bins.", shape="(n+1,)")
    ]
    counts: Annotated[list[NonNegative], doc("Values in each bin.", unit="elements", shape="(n,)")]


class PackedGrid(Struct, gc=False):
    """A grid of 8-bit numbers: value = min + (max - min) * byte / 255."""

    encoding: Annotated[Literal["q8"], doc("How `data` is packed.")]
    shape: Annotated[list[Count], doc("Size of the unpacked grid; a leading size is the number of heads.", shape="(2,) or (3,)")]
    min: Annotated[Number, doc("Value of byte 0.")]
    max: Annotated[Number, doc("Value of byte 255.")]
    data: Annotated[str, doc("The bytes in C order, base64.")]


Grid = PackedGrid | list[list[Number]]


class WeightStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """One weight tensor, after the update of this step."""

    shape: Shape | UnsetType = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type, such as float32 or bfloat16.")] = UNSET
    numel: Annotated[Count | UnsetType, doc("Number of elements.", unit="elements")] = UNSET
    mean: Annotated[Number | UnsetType, doc("Arithmetic mean of the finite elements.")] = UNSET
    std: Annotated[NonNegative | UnsetType, doc("Population standard deviation.")] = UNSET
    m2: Annotated[NonNegative | UnsetType, doc("Sum of squared deviations from the mean: merges with numel and mean.")] = UNSET
    min: Annotated[Number | UnsetType, doc("Smallest element.")] = UNSET
    max: Annotated[Number | UnsetType, doc("Largest element.")] = UNSET
    frobenius_norm: Annotated[NonNegative | UnsetType, doc("Square root of the sum of squared elements.")] = UNSET
    spectral_norm: Annotated[NonNegative | UnsetType, doc("Largest singular value, by power iteration.")] = UNSET
    percentiles: Annotated[Percentiles | UnsetType, doc("Values at 1, 5, 25, 50, 75, 95 and 99 %.", shape="(7,)")] = UNSET
    sampled: Annotated[Count | UnsetType, doc("Elements that percentiles and histogram saw; absent: all.", unit="elements")] = (
        UNSET
    )
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    sampled_grid_32x32: Annotated[Grid | UnsetType, doc("Elements at rows and columns floor(i*n/32).", shape="(32, 32)")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    tied_to: Annotated[str | UnsetType, doc("Name of the tensor that shares this storage.")] = UNSET
    placement: Annotated[Placement | UnsetType, doc("What part of the tensor a rank's own file describes.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the exact bytes, as algorithm:hex.")] = UNSET


class GradientStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """The gradient of one weight tensor: after AMP unscale and before clipping, unless `gradients_source` says otherwise."""

    norm: Annotated[NonNegative | UnsetType, doc("L2 norm of the gradient.")] = UNSET
    mean: Annotated[Number | UnsetType, doc("Arithmetic mean of the finite elements.")] = UNSET
    std: Annotated[NonNegative | UnsetType, doc("Population standard deviation.")] = UNSET
    m2: Annotated[NonNegative | UnsetType, doc("Sum of squared deviations from the mean.")] = UNSET
    min: Annotated[Number | UnsetType, doc("Smallest element.")] = UNSET
    max: Annotated[Number | UnsetType, doc("Largest element.")] = UNSET
    zero_fraction: Annotated[NonNegative | UnsetType, doc("Share of elements that are exactly zero, 0 to 1.")] = UNSET
    percentiles: Annotated[Percentiles | UnsetType, doc("Values at 1, 5, 25, 50, 75, 95 and 99 %.", shape="(7,)")] = UNSET
    sampled: Annotated[Count | UnsetType, doc("Elements that percentiles and histogram saw; absent: all.", unit="elements")] = (
        UNSET
    )
    histogram: Annotated[Histogram | UnsetType, doc("Distribution of the elements.")] = UNSET
    sampled_grid_32x32: Annotated[Grid | UnsetType, doc("Elements at rows and columns floor(i*n/32).", shape="(32, 32)")] = UNSET
    dtype: Annotated[str | UnsetType, doc("Element type of the gradient.")] = UNSET
    numel: Annotated[Count | UnsetType, doc("Number of elements.", unit="elements")] = UNSET
    nonfinite_count: Annotated[Count | UnsetType, doc("Elements that are NaN or infinite.", unit="elements")] = UNSET
    placement: Annotated[Placement | UnsetType, doc("What part of the gradient a rank's own file describes.")] = UNSET
    hash: Annotated[str | UnsetType, doc("Hash of the exact bytes, as algorithm:hex.")] = UNSET


class DeltaStats(Struct, kw_only=True, omit_defaults=True, gc=False):
    """How far one weight tensor moved."""

    norm: Annotated[NonNegative | UnsetType, doc("L2 norm of the last update, w_new - w_old.")] = UNSET
    relative: Annotated[NonNegative | UnsetType, doc("norm over the norm of the tensor.")] = UNSET
    moved: Annotated[NonNegative | UnsetType, doc("Norm of w_t - w_0 over the norm of w_0.")] = UNSET
