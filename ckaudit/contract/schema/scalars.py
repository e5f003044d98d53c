"""`ck.scalars.v1`: the file `scalars.jsonl`, one JSON object per line and optimizer step; its shares; its exported tables.

A line holds `step`, `time`, `session` and any number of values by their catalogue names. A label follows a slash:
"slice_val_loss/regular". Values are numbers, the words of `NonFinite`, or text for names and hashes; null means not recorded.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Step, doc

VERSION = "ck.scalars.v1"

Value = float | str | bool | None

Unit = Literal["percent", "fraction"]

SHARE_UNITS: Mapping[str, Unit] = {
    **dict.fromkeys(
        (
            "mfu",
            "dataloader_stall_frac",
            "comm_time_frac",
            "compute_time_frac",
            "source_mix_share",
            "language_share",
            "pad_fraction",
            "rtp_toxicity_prob",
            "grad_clip_rate",
        ),
        "fraction",
    ),
    **dict.fromkeys(
        (
            "gpu_util",
            "topk_mass_probe",
            "filter_reject_rate",
            "lr_phase",
            "overflow_rate",
            "moe_drop_rate",
            "activation_outlier_rate",
            "near_dup_rate",
            "train_val_overlap",
            "data_toxicity_rate",
            "pii_hit_rate",
            "memorization_rate",
        ),
        "percent",
    ),
}
"""Unit in which each logged share is assumed; the other unit is recognised by its range if possible."""

EXPORT_MARK = "ckaudit.export"
"""Metadata key of a Parquet or Arrow file, and writer of an event file, that mark exported scalars of ckaudit."""

EXPORTED_WORDS = ":text"
"""Suffix of the names of columns with words in such a table."""

EXPORT_KEYS = ("step", "session")
"""First columns of such a table, by which a CSV is recognised."""

EXPORT_SESSION = "_ckaudit_session"
"""Session column by which an exported history in the form of W&B is recognised."""


_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def inert(text: str) -> str:
    """Return a CSV cell that no spreadsheet reads as a formula: with a leading apostrophe if it begins as one.

    >>> inert("=cmd|x"), inert("loss"), inert("'a")
    ("'=cmd|x", 'loss', "''a")
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text


def as_written(cell: str) -> str:
    """Return the text from which `inert` made a cell.

    >>> as_written(inert("=cmd|x")), as_written("loss"), as_written("it's")
    ('=cmd|x', 'loss', "it's")
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULAS) else cell


class ScalarLine(Struct, kw_only=True, omit_defaults=True):
    """The fixed part of a line; all its other members are values."""

    step: Annotated[Step, doc("Number of update attempts completed.", unit="steps")]
    schema_version: Annotated[
        Literal["ck.scalars.v1"] | UnsetType, doc("Version of the contract that the lines follow; in a session's first line.")
    ] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the line was written, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Number of the session that wrote the line; absent: 0.")] = UNSET


def in_unit(unit: Unit) -> str:
    """Return the names of the shares with one unit as a list for a sentence."""
    return ", ".join(sorted(name for name, share_unit in SHARE_UNITS.items() if share_unit == unit))
