"""Shares, probabilities and cosines within their range."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

from msgspec import Struct

from ckaudit.contract import contradictions as kinds
from ckaudit.contract.checks import CheckInput, PointerParts, check
from ckaudit.contract.io.columns import SectionColumns
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind

TABLE_SHARES = {"gradients": ("zero_fraction",), "activations": ("sparsity", "outlier_rate"), "weight_deltas": ("unchanged",)}
HEAD_SHARES = ("normalized_entropy_per_head", "sharp_share_per_head", "max_attn_per_head", "upper_triangle_mass_per_head")
SINGLE_SHARES = {
    "data": ("target_shift_match", "embedded_shift_match", "target_equals_input", "target_equals_embedded", "duplicate_share"),
    "optimizer": ("clip_coefficient",),
    "loss_function": ("normalized_share", "smoothing"),
}
PROBE_SHARES = ("exact_match", "overlap")
SCALAR_SHARES = (
    "comm_time_frac",
    "compute_time_frac",
    "dataloader_stall_frac",
    "grad_carried_over",
    "language_share",
    "min_normalized_entropy",
    "pad_fraction",
    "source_mix_share",
    "top_gradient_share",
)


@check(
    kinds.SHARE_OUTSIDE,
    reads=(
        *(f"{section}.*.{name}" for section, names in TABLE_SHARES.items() for name in names),
        *(f"attention.*.{name}" for name in HEAD_SHARES),
    ),
)
def share(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """Every share of tensors, modules and heads is within 0 to 1.

    Args:
        subject: The checkpoint.
        rounding: Absolute error: a probability or mean in bfloat16 has 8 bits, 0.4 %.
    """
    for section, names in TABLE_SHARES.items():
        yield from _columns(subject, section, names, rounding)
    yield from _arrays(subject, HEAD_SHARES, (-rounding, 1 + rounding), kinds.SHARE_OUTSIDE, "between 0 and 1")


@check(
    kinds.SHARE_OUTSIDE,
    reads=(
        *(f"{section}.{name}" for section, names in SINGLE_SHARES.items() for name in names),
        *(f"probes.*.{name}" for name in PROBE_SHARES),
        "scalars",
    ),
)
def single_share(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """Every single share is within 0 to 1.

    Args:
        subject: The checkpoint.
        rounding: Absolute error, as for the other shares.
    """
    for place, value in _singles(subject):
        if isinstance(value, (int, float)) and not -rounding <= value <= 1 + rounding:
            yield subject.find(kinds.SHARE_OUTSIDE, place, "between 0 and 1", float(value))


def _columns(subject: CheckInput, section: str, names: tuple[str, ...], rounding: float) -> Iterator[Finding]:
    """Yield tensors or modules with a share above 1; the schema excludes negative ones."""
    table = subject.table(section)
    for field in names:
        if field in table.plain and max(table.columns[field]) <= 1:
            continue
        for name, value in table.rows(field):
            if value > 1 + rounding:
                yield subject.find(kinds.SHARE_OUTSIDE, (section, name, field), "between 0 and 1", value)


def _singles(subject: CheckInput) -> Iterator[tuple[PointerParts, Any]]:
    """Yield the single shares: of the batch, the optimizer, the loss function, the probes and among the scalars."""
    document = subject.document
    for section, names in SINGLE_SHARES.items():
        if isinstance(part := getattr(document, section), Struct):
            yield from (((section, name), getattr(part, name)) for name in names)
    for probe, stats in (document.probes or {}).items():
        yield from ((("probes", probe, name), getattr(stats, name)) for name in PROBE_SHARES)
    for name, value in (document.scalars or {}).items():
        if name.partition("/")[0] in SCALAR_SHARES:
            yield ("scalars", name), value


@check(kinds.SIMILARITY_OUTSIDE, reads=("attention.*.nearest_similarity_per_head",))
def similarity(subject: CheckInput, *, rounding: float = 1e-2) -> Iterator[Finding]:
    """A cosine is within -1 to 1.

    Args:
        subject: The checkpoint.
        rounding: Absolute error of a cosine of bfloat16 vectors.
    """
    ends = (-1 - rounding, 1 + rounding)
    yield from _arrays(subject, ("nearest_similarity_per_head",), ends, kinds.SIMILARITY_OUTSIDE, "between -1 and 1")


def _arrays(
    subject: CheckInput, fields: tuple[str, ...], ends: tuple[float, float], kind: ViolationKind, expected: str
) -> Iterator[Finding]:
    """Yield the first number of each per-head array that is out of range.

    Args:
        subject: The checkpoint.
        fields: Names of the arrays.
        ends: Smallest and largest number allowed.
        kind: The violation.
        expected: The range in words.
    """
    table = subject.table("attention")
    for field in fields:
        if not _all_within(table, field, ends):
            for name, values in table.recorded(field):
                for head, value in enumerate(values):
                    if isinstance(value, float) and not ends[0] <= value <= ends[1]:
                        yield subject.find(kind, ("attention", name, field, head), expected, value)
                        break


def _all_within(table: SectionColumns, field: str, ends: tuple[float, float]) -> bool:
    """Tell whether every number of a per-head array is in range, in all layers at once."""
    if field not in table.columns:
        return True
    try:
        numbers = list(chain.from_iterable(table.columns[field]))
        return bool(min(numbers) >= ends[0] and max(numbers) <= ends[1])
    except (TypeError, ValueError):  # not recorded everywhere, words, or no head anywhere
        return False
