"""`ck.scalars.v1`: the file `scalars.jsonl`, one JSON object per line and optimizer step; its shares; its exported tables.

A line holds `step`, `time`, `session` and any number of values by their catalogue names. A label follows a slash:
"slice_val_loss/regular". Values are numbers, the words of `NonFinite`, or text for names and hashes; null is not recorded.
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
"""What a reader takes a logged share to be in; the other unit is recognised by its range where that is possible."""

EXPORT_MARK = "ckaudit.export"
"""Key in the metadata of a Parquet or Arrow file, and the writer of an event file: the scalars in it are ours, as they were."""

EXPORTED_WORDS = ":text"
"""What ends the name of a column that holds words in such a table."""

EXPORT_KEYS = ("step", "session")
"""The first columns of such a table, which a CSV is known by."""

EXPORT_SESSION = "_ckaudit_session"
"""The column of sessions in an exported history like that of W&B, which it is known by."""


_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def inert(text: str) -> str:
    """Return a cell of a CSV that no spreadsheet takes for a formula: behind an apostrophe, where it begins as one.

    >>> inert("=cmd|x"), inert("loss"), inert("'a")
    ("'=cmd|x", 'loss', "''a")
    """
    return f"'{text}" if text.startswith(_FORMULAS) else text


def as_written(cell: str) -> str:
    """Return the text that `inert` made a cell of.

    >>> as_written(inert("=cmd|x")), as_written("loss"), as_written("it's")
    ('=cmd|x', 'loss', "it's")
    """
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULAS) else cell


class ScalarLine(Struct, kw_only=True, omit_defaults=True):
    """The part of a line that is always the same; all its other members are values."""

    step: Annotated[Step, doc("Update attempts finished.", unit="steps")]
    schema_version: Annotated[
        Literal["ck.scalars.v1"] | UnsetType, doc("Which contract the lines follow; on a session's first line.")
    ] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the line was written, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Which start of the run wrote the line; absent: 0.")] = UNSET


def in_unit(unit: Unit) -> str:
    """Return the names of the shares of one unit as a list for a sentence."""
    return ", ".join(sorted(name for name, share_unit in SHARE_UNITS.items() if share_unit == unit))
