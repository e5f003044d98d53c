"""Summaries of findings and checks: one finding for similar files, and the inputs that most skipped checks lack."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import product

from msgspec.structs import replace

from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.report import SEVERITIES, Check, Finding

Key = tuple[str | None, ...]

ONE_OF = "needs one of "
OR = ", or "


def same_place(finding: Finding) -> Key:
    """Return the key that violations at the same place of different files in a folder share.

    A file that is broken as a whole, or a line of a log, has a key of its own: each is named.
    """
    folder, _, name = (finding.file or "").rpartition("/")
    own_name = name if finding.pointer is None or CHECKPOINT_NAME.match(name) is None else None
    line = str(finding.line) if own_name else None
    return finding.code, finding.severity, folder, finding.pointer, finding.where, own_name, line


def same_kind(finding: Finding) -> Key:
    """Return the key that violations of one kind share, at any place."""
    return finding.code, finding.severity


def across_files(findings: Iterable[Finding], key: Callable[[Finding], Key]) -> list[Finding]:
    """Return findings in order, with one finding for similar files: the first one, with their number.

    Args:
        findings: Findings in files, and other findings, which are unchanged.
        key: Returns equal keys for similar findings.
    """
    groups: dict[Key, list[Finding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(key(finding) if finding.file else (str(number),), []).append(finding)
    return [_one_of(members) for members in groups.values()]


def _one_of(alike: list[Finding]) -> Finding:
    """Return one finding for all: that of the first file by step."""
    if len(alike) == 1:
        return alike[0]
    steps = [step for finding in alike if (step := _step_of(finding)) is not None]
    first = min(alike, key=lambda finding: (_step_of(finding) or 0, finding.file or "", finding.line or 0))
    files = dict.fromkeys(finding.file for finding in alike if finding.file and finding.file != first.file)
    more = f"the same in {len(files)} more file{'s' if len(files) > 1 else ''}" if files else f"and {len(alike) - 1} more"
    since = f" from step {min(steps)} to {max(steps)}" if files and len(steps) == len(alike) else ""
    changes = {"first_step": min(steps), "last_step": max(steps)} if steps and first.first_step is None else {}
    return replace(first, message=f"{first.message} ({more}{since})", also=[*first.also, *files], **changes)


def _step_of(finding: Finding) -> int | None:
    """Return the step of a finding's checkpoint from its file name."""
    if finding.first_step is not None:
        return finding.first_step
    match = CHECKPOINT_NAME.match((finding.file or "").rpartition("/")[2])
    return int(match["step"]) if match and match["step"] else None


def needs_of(check: Check) -> tuple[tuple[str, ...], ...]:
    """Return the inputs that a check lacked, each with its alternatives; empty if it had all."""
    return parse_needs(check.detail) if check.reason == "not_recorded" and check.detail else ()


def parse_needs(detail: str) -> tuple[tuple[str, ...], ...]:
    """Return the inputs that a sentence names, each with its alternatives.

    >>> parse_needs("needs a, b or c"), parse_needs("needs one of a, b"), parse_needs("needs a, or b and c")
    ((('a',), ('b', 'c')), (('a', 'b'),), (('a', 'b'), ('a', 'c')))
    """
    if detail.startswith(ONE_OF):
        return (tuple(detail.removeprefix(ONE_OF).split(", ")),)
    if OR in detail:
        return tuple(product(*(names.split(" and ") for names in detail.removeprefix("needs ").split(OR))))
    return tuple(tuple(names.split(" or ")) for names in detail.removeprefix("needs ").split(", "))


def most_missed(checks: Iterable[Check], *, top: int = 3) -> list[tuple[str, int]]:
    """Return the `top` inputs that most checks lacked, with the number of checks; ties go to the more severe check."""
    counts: Counter[str] = Counter()
    gravest: dict[str, int] = {}
    for check in checks:
        for thing in map(" or ".join, needs_of(check)):
            counts[thing] += 1
            gravest[thing] = min(SEVERITIES.index(check.severity), gravest.get(thing, len(SEVERITIES)))
    return sorted(counts.items(), key=lambda item: (-item[1], gravest[item[0]], item[0]))[:top]
