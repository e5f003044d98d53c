"""One finding of many files that break the contract in the same way: a writer that is wrong is so in every file."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.report import Finding

Key = tuple[str | None, ...]


def same_place(finding: Finding) -> Key:
    """Return what violations of different files of a folder share where they stand at the same place of each.

    A file that is broken as a whole is alike to no other, nor is a line of a log: each is named.
    """
    folder, _, name = (finding.file or "").rpartition("/")
    own = name if finding.pointer is None or CHECKPOINT_NAME.match(name) is None else None
    return finding.code, finding.severity, folder, finding.pointer, finding.where, own, str(finding.line) if own else None


def same_kind(finding: Finding) -> Key:
    """Return what violations of one kind share, wherever they stand."""
    return finding.code, finding.severity


def across_files(findings: Iterable[Finding], key: Callable[[Finding], Key]) -> list[Finding]:
    """Return findings in their order, those of files that are alike once: the first speaks, and says how many there are.

    Args:
        findings: What was found in files, and anything else, which stays as it is.
        key: What is equal in those that are alike.
    """
    groups: dict[Key, list[Finding]] = {}
    for number, finding in enumerate(findings):
        groups.setdefault(key(finding) if finding.file else (str(number),), []).append(finding)
    return [_one_of(members) for members in groups.values()]


def _one_of(alike: list[Finding]) -> Finding:
    """Return one finding for all: that of the first file, by its step."""
    if len(alike) == 1:
        return alike[0]
    steps = [step for finding in alike if (step := _step_of(finding)) is not None]
    first = min(alike, key=lambda each: (_step_of(each) or 0, each.file or "", each.line or 0))
    files = dict.fromkeys(finding.file for finding in alike if finding.file and finding.file != first.file)
    more = f"the same in {len(files)} more file{'s' if len(files) > 1 else ''}" if files else f"and {len(alike) - 1} more"
    since = f" from step {min(steps)} to {max(steps)}" if files and len(steps) == len(alike) else ""
    changes = {"first_step": min(steps), "last_step": max(steps)} if steps and first.first_step is None else {}
    return replace(first, message=f"{first.message} ({more}{since})", also=[*first.also, *files], **changes)


def _step_of(finding: Finding) -> int | None:
    """Return the step of the checkpoint that a finding is about, by the name of its file."""
    if finding.first_step is not None:
        return finding.first_step
    match = CHECKPOINT_NAME.match((finding.file or "").rpartition("/")[2])
    return int(match["step"]) if match and match["step"] else None
