"""What stands first: of what is equally grave, the training before its record, and what lasts before what came back."""

from collections.abc import Sequence

from ckaudit.audit.judge import gravity
from ckaudit.audit.playbook.workflow import RECORDS, part_of
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding
from ckaudit.run.run import Run


def ranked(findings: Sequence[Finding], run: Run) -> list[Finding]:
    """Return findings gravest first; of one severity, those of the training first, of these those that last, then by step."""

    def place(finding: Finding) -> tuple[int, bool, bool, tuple[int, bool, int, str]]:
        return SEVERITIES.index(finding.severity), of_record(finding), is_over(finding, run), gravity(finding)

    return sorted(findings, key=place)


def first_causes(diagnoses: Sequence[Diagnosis], findings: Sequence[Finding], run: Run, *, sure: float = 0.5) -> list[Diagnosis]:
    """Return causes likeliest first, but none before others that explains no more than the record, or what came back.

    Args:
        diagnoses: Causes, likeliest first.
        findings: What they explain.
        run: Says how long a finding lasts beside the record.
        sure: A cause of something that lasts comes first from this confidence on, if that is as grave.
    """
    ill = [finding for finding in findings if finding.severity != "note"]
    explained = {diagnosis.cause: [one for one in ill if one.code in diagnosis.explains] for diagnosis in diagnoses}
    passing = {name for name, found in explained.items() if found and _are_over(found, run)}
    lasting = [diagnosis for diagnosis in diagnoses if diagnosis.cause not in passing and diagnosis.confidence >= sure]

    def place(diagnosis: Diagnosis) -> tuple[bool, bool]:
        grave = SEVERITIES.index(diagnosis.severity)
        yields = diagnosis.cause in passing and any(SEVERITIES.index(diagnosis.severity) <= grave for diagnosis in lasting)
        return all(map(of_record, explained[diagnosis.cause])), yields

    return sorted(diagnoses, key=place)


def of_record(finding: Finding) -> bool:
    """Tell whether a finding is about what was written of the training, and not about the training."""
    return part_of(finding.code) == RECORDS


def is_over(finding: Finding, run: Run) -> bool:
    """Tell whether an illness was short and has come back to health."""
    return _are_over([finding], run)


def _are_over(findings: Sequence[Finding], run: Run, *, share: float = 0.1) -> bool:
    """Tell whether illnesses, taken as one, were short and have come back to health.

    Args:
        findings: The illnesses.
        run: The record.
        share: Of the record that a short one takes at most, and that is healthy after it at least.
    """
    starts, ends = [finding.first_step for finding in findings], [finding.last_step for finding in findings]
    known = [(first, last) for first, last in zip(starts, ends, strict=True) if first is not None and last is not None]
    if run.last_step is None or len(known) < len(findings):
        return False
    first, last, room = min(first for first, _ in known), max(last for _, last in known), share * run.last_step
    return last - first < room and run.last_step - last > room
