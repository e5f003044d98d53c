"""Places of findings: which tensors or heads a finding names, and how to name many in a sentence."""

from collections.abc import Collection, Iterable

from ckaudit.contract.schema.report import Finding


def places_of(findings: Iterable[Finding]) -> set[str]:
    """Return every place that findings name."""
    return {place for finding in findings for place in (finding.where, *finding.also) if place}


def named(places: Collection[str]) -> str:
    """Return the first place in order and how many others there are.

    >>> named(["b", "a", "c"])
    'a and 2 more'
    """
    first = min(places)
    return first if len(places) == 1 else f"{first} and {len(places) - 1} more"
