"""`ck.measures.v1`: values by catalogue name, measured on raw material such as texts or generations."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Struct

from ckaudit import __version__
from ckaudit.contract.schema.numbers import Count, Number, doc
from ckaudit.contract.schema.report import Finding, SkipReason

VERSION: Literal["ck.measures.v1"] = "ck.measures.v1"


class Measure(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """One value."""

    name: Annotated[str, doc("Catalogue name; a label is appended after a slash.")]
    row: Annotated[str, doc("Row of the catalogue, such as M36.")]
    value: Annotated[Number, doc("The value, in its unit: a share from 0 to 1, a rate in percent.")]
    unit: Annotated[str, doc('Unit of value, low, high and reference; "1" for a pure number.')]
    points: Annotated[Count, doc("Number of documents, tokens, prompts or generations that the value was computed from.")]
    low: Annotated[Number | None, doc("Lower end of the 95 % confidence interval.")] = None
    high: Annotated[Number | None, doc("Upper end of the 95 % confidence interval.")] = None
    reference: Annotated[Number | None, doc("The same value in the reference sample.")] = None
    detail: Annotated[str | None, doc("Notes on how the value was measured.")] = None


class Missing(Struct, kw_only=True, omit_defaults=True, frozen=True):
    """A value that could not be measured."""

    name: Annotated[str, doc("Catalogue name.")]
    row: Annotated[str, doc("Row of the catalogue.")]
    reason: Annotated[SkipReason, doc("Why the value could not be measured.")]
    detail: Annotated[str, doc("The missing data, and how to provide it.")]


class Cluster(Struct, kw_only=True, frozen=True):
    """Documents that are nearly identical."""

    documents: Annotated[Count, doc("Number of documents.", unit="documents")]
    places: Annotated[list[str], doc("The first of these documents, as file:line.")]
    excerpt: Annotated[str, doc("Beginning of the first document; personal data in it is masked.")]


class Measures(Struct, kw_only=True, frozen=True):
    """All measurements; all members are always written, empty if there is nothing."""

    schema_version: Annotated[Literal["ck.measures.v1"], doc("Version of the contract that this document follows.")]
    tool: Annotated[str, doc("Name and version of the program.")]
    command: Annotated[str, doc("data, or probe and the kind of probe.")]
    subject: Annotated[str, doc("The measured sample, as the user named it.")]
    measures: Annotated[list[Measure], doc("The values, in the order of the catalogue.")] = []
    missing: Annotated[list[Missing], doc("Values that could not be measured, and why.")] = []
    clusters: Annotated[list[Cluster], doc("The largest groups of near-duplicate documents.")] = []
    findings: Annotated[list[Finding], doc("Problems of the sample.")] = []
    notes: Annotated[list[str], doc("Further notes.")] = []
    files: Annotated[Count, doc("Number of files in the sample.", unit="files")] = 0
    records: Annotated[Count, doc("Number of records read.")] = 0


def gathered(command: str, subject: str, results: Iterable[Measure | Missing], **rest: Any) -> Measures:
    """Return the document of a measurement, with values and missing ones in the order of the catalogue's rows.

    Args:
        command: The command that measured.
        subject: The measured material.
        results: Values, and those that could not be measured.
        **rest: The other members of `Measures`.
    """
    ordered = sorted(results, key=lambda result: result.row)
    return Measures(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command=command,
        subject=subject,
        measures=[measure for measure in ordered if isinstance(measure, Measure)],
        missing=[missing for missing in ordered if isinstance(missing, Missing)],
        **rest,
    )
