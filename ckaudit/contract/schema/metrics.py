"""`ck.metrics.v1`: derived series of a run for other programs, printed by `ckaudit metrics --format json`."""

from typing import Annotated, Literal

from msgspec import Struct

from ckaudit.contract.schema.numbers import Count, Number, Step, doc

VERSION: Literal["ck.metrics.v1"] = "ck.metrics.v1"

Trend = Literal["rising", "falling", "steady"]


class MetricTable(Struct, kw_only=True, frozen=True):
    """One metric: a table of steps by labels."""

    name: Annotated[str, doc("Catalogue name.")]
    title: Annotated[str, doc("The metric in one sentence.")]
    unit: Annotated[str, doc('Unit of the values, "1" for a pure number.')]
    source: Annotated[str, doc("Source of the definition.")]
    steps: Annotated[list[Step], doc("Steps in increasing order.", unit="steps", shape="(T,)")]
    labels: Annotated[
        list[str], doc("Tensors, blocks, heads or slices; the metric's own name if there is only one row.", shape="(P,)")
    ]
    values: Annotated[
        list[list[Number | None]], doc("One row for each label; null: not recorded; a word: not finite.", shape="(P, T)")
    ]


class Missing(Struct, kw_only=True, frozen=True):
    """A metric that has no value, and why."""

    name: Annotated[str, doc("Catalogue name.")]
    reason: Annotated[Literal["not_recorded", "not_in_these_steps", "broke"], doc("Why the metric has no value.")]
    detail: Annotated[str | None, doc("The error, if the metric failed.")] = None


class Metrics(Struct, kw_only=True, frozen=True):
    """All requested metrics; all members are always written."""

    schema_version: Annotated[Literal["ck.metrics.v1"], doc("Version of the contract that this document follows.")]
    tool: Annotated[str, doc("Name and version of the program.")]
    subject: Annotated[str, doc("The run, as the user named it.")]
    step: Annotated[Step | None, doc("The last step included; null: nothing was recorded.", unit="steps")]
    files: Annotated[Count, doc("Number of files read.", unit="files")]
    missing: Annotated[list[Missing], doc("Metrics without a value.")]
    notes: Annotated[list[str], doc("Notes on how the metrics were computed.")]
    metrics: Annotated[list[MetricTable], doc("The metrics by name.")]
