"""Findings gained and lost: illnesses that only one of two runs has, or has graver."""

from collections.abc import Iterable

from ckaudit.contract.schema.report import SEVERITIES, Finding
from ckaudit.diff.run_pair import Both

WORTH = SEVERITIES[:3]
"""Severities that count; a note is no illness."""
GRAVE = SEVERITIES[:2]
"""Severities that make a pair worse or better by themselves: what is only to be investigated comes and goes with the seed."""


def gained_and_lost(both: Both) -> tuple[list[Finding], list[Finding]]:
    """Return the gravest finding of each illness that only the second run has, and of those that only the first has.

    Illnesses are told by their code: in which tensor an illness shows first differs from seed to seed. What a replica of
    the first run has too is chance, and no loss where a replica does without it.
    """
    left, right = _worst(both.left.findings), _worst(both.right.findings)
    replicas = [_worst(side.findings) for side in both.replicas]
    gained = [each for code, each in right.items() if all(_graver(each, known.get(code)) for known in (left, *replicas))]
    lost = [each for code, each in left.items() if _graver(each, right.get(code)) and all(code in known for known in replicas)]
    return gained, lost


def _worst(findings: Iterable[Finding]) -> dict[str, Finding]:
    """Return the gravest finding of each code, notes left out."""
    found: dict[str, Finding] = {}
    for finding in findings:
        if finding.severity in WORTH and _graver(finding, found.get(finding.code)):
            found[finding.code] = finding
    return found


def _graver(one: Finding, other: Finding | None) -> bool:
    return other is None or SEVERITIES.index(one.severity) < SEVERITIES.index(other.severity)
