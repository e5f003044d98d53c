"""`ck.scalars.v1`: the file `scalars.jsonl`, one JSON object per line and optimizer step.

A line holds `step`, `time`, `session` and any number of values by their catalogue names. A label follows a slash:
"slice_val_loss/regular". Values are numbers, the words of `NonFinite`, or text for names and hashes; null is not recorded.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Struct, UnsetType

from ckaudit.contract.schema.numbers import Count, NonNegative, Step, doc

VERSION = "ck.scalars.v1"

Value = float | str | bool | None


class ScalarLine(Struct, kw_only=True, omit_defaults=True):
    """The part of a line that is always the same; all its other members are values."""

    step: Annotated[Step, doc("Update attempts finished.", unit="steps")]
    schema_version: Annotated[
        Literal["ck.scalars.v1"] | UnsetType, doc("Which contract the lines follow; on a session's first line.")
    ] = UNSET
    time: Annotated[NonNegative | UnsetType, doc("When the line was written, Unix time.", unit="s")] = UNSET
    session: Annotated[Count | UnsetType, doc("Which start of the run wrote the line; absent: 0.")] = UNSET
