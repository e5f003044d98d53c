"""Why a finding is normal: healthy siblings have it as well, or it concerns a loss that is no higher than theirs."""

import re
from collections.abc import Iterable, Sequence
from math import log

import numpy as np
from msgspec import Struct

from ckaudit.contract.schema.report import SEVERITIES, Check, Finding
from ckaudit.diff.run_pair import OF_CLOCK
from ckaudit.diff.siblings.bands import Band
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.rules import rules
from ckaudit.wording import plural

OF_THE_LOSS_COURSE = ("LOSS002", "LOSS003", "LOSS004", "LOSS008", "D1.1", "D2.1", "D4.6", "D5.1")
"""Findings on the course of a loss: it rises, does not fall, oscillates, or parts from the held-out one."""

CLOSE = 1.5
"""Maximum ratio of a value's excess over its limit to that of a sibling for both to be comparable."""

_NUMBER = re.compile(r"\d+")


class SiblingFindings(Struct, frozen=True):
    """The results of a sibling's audit.

    Attributes:
        findings: All findings, whether they count or not.
        checks: The outcome of each rule.
    """

    findings: Sequence[Finding]
    checks: Sequence[Check]

    def could_judge(self, code: str) -> bool:
        """Tell whether the rule or question of a code could judge the sibling."""
        return any(check.code == code and check.outcome in ("passed", "failed") for check in self.checks)


def why_normal(
    finding: Finding, siblings: Sequence[SiblingFindings], losses: Sequence[Band], *, last_step: int | None = None
) -> str | None:
    """Return why a finding is normal among healthy siblings, or None if it is not.

    Findings of sev0 or sev1, contradictions between files, findings on time, and departures from the siblings are never normal.

    Args:
        finding: The finding.
        siblings: Results of the healthy siblings that count.
        losses: Bands of the training loss and the held-out loss.
        last_step: The last step of the run.
    """
    is_judged_of_training = finding.code in rules() or finding.code in BAD
    if finding.severity != "sev2" or finding.file is not None or not is_judged_of_training or finding.code in OF_CLOCK:
        return None
    able = [sibling for sibling in siblings if sibling.could_judge(finding.code)]
    same = [other for sibling in able if (other := _same(finding, sibling.findings, last_step or 0)) is not None]
    if same and 2 * len(same) >= len(able):
        blind = f", and {plural(len(siblings) - len(able), 'other')} could not judge" if len(able) < len(siblings) else ""
        have = "the healthy sibling has it" if len(able) == 1 else f"{len(same)} of {len(able)} healthy siblings have it"
        return f"{have} too, of comparable size{_sizes(same)}{blind}"
    return _why_level(finding, losses)


def _same(finding: Finding, others: Iterable[Finding], end: int) -> Finding | None:
    """Return a sibling's finding of the same illness with the same severity and comparable place, time and size."""
    return next(
        (
            other
            for other in others
            if other.code == finding.code
            and SEVERITIES.index(other.severity) <= SEVERITIES.index(finding.severity)
            and _is_of_place(finding, other)
            and _is_of_time(finding, other, end)
            and _is_of_size(finding, other)
        ),
        None,
    )


def _is_of_place(finding: Finding, other: Finding) -> bool:
    """Tell whether half of a finding's places are places of another, ignoring the numbers of blocks and heads."""
    mine, theirs = _places(finding), _places(other)
    return 2 * len(mine & theirs) >= len(mine)


def _places(finding: Finding) -> set[str]:
    return {_NUMBER.sub("*", place or "") for place in (finding.where, *finding.also)}


def _is_of_time(finding: Finding, other: Finding, end: int, *, short: float = 0.1) -> bool:
    """Tell whether half of a finding's steps are steps of another; for one shorter than `short` of the run, any time counts."""
    first, last = _span(finding, end)
    if last - first <= short * end:
        return True
    since, until = _span(other, end)
    return 2 * (min(last, until) - max(first, since)) >= last - first


def _span(finding: Finding, end: int) -> tuple[int, int]:
    first = 0 if finding.first_step is None else finding.first_step
    return first, max(first, end if finding.last_step is None else finding.last_step)


def _is_of_size(finding: Finding, other: Finding) -> bool:
    """Tell whether a value is not much further beyond its limit than another; without a limit, whether both are as large."""
    mine, theirs = (_excess(one) for one in (finding, other))
    if mine is None or theirs is None:
        return mine is theirs
    return abs(mine) <= CLOSE * abs(theirs) + log(CLOSE)


def _excess(finding: Finding) -> float | None:
    value, limit = finding.value, finding.limit
    if not isinstance(value, int | float) or not isinstance(limit, int | float) or value <= 0 or limit <= 0:
        return None
    return log(value / limit)


def _sizes(findings: Sequence[Finding]) -> str:
    values = sorted(float(one.value) for one in findings if isinstance(one.value, int | float))
    if not values:
        return ""
    low, high = f"{values[0]:.4g}", f"{values[-1]:.4g}"
    return f" ({low} there)" if low == high else f" ({low} to {high} there)"


def _why_level(finding: Finding, losses: Sequence[Band], *, least_siblings: int = 2) -> str | None:
    """Return that each loss is no higher than in the siblings at the finding's steps, None if it is higher.

    Args:
        finding: The finding.
        losses: Bands of the training loss and the held-out loss.
        least_siblings: Minimum number of siblings that show the spread of healthy runs.
    """
    if finding.code not in OF_THE_LOSS_COURSE or not losses:
        return None
    if any(len(band.levels) < least_siblings or not _is_no_higher(band, finding) for band in losses):
        return None
    names = " and ".join(band.quantity.says for band in losses)
    verb = "is" if len(losses) == 1 else "are"
    return f"{names} {verb} no higher than in {len(losses[0].levels)} healthy siblings, from there to the end"


def _is_no_higher(band: Band, finding: Finding) -> bool:
    """Tell whether a loss is no higher than the highest of the siblings', from a finding's first step to the end.

    This must hold for the level of each segment and, while the finding lasts, for the highest point, within the noise of a single
    point. A finding without a first step concerns the last quarter.
    """
    parts, points = band.stretches, band.columns
    since = int(parts.first[3 * len(parts.first) // 4]) if finding.first_step is None else finding.first_step
    rows = parts.last >= since
    rows[-1] = True
    during = (points.steps >= since) & (points.steps <= (finding.last_step or points.steps[-1]))
    highest = max(float(column[during].max(initial=-np.inf)) for column in points.theirs)
    is_level = bool((parts.right[rows] <= parts.high[rows] + parts.alone).all())
    return is_level and not bool((points.own[during] > highest + parts.alone).any())
