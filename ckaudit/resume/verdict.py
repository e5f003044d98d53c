"""From what was seen of the checkpoints to the report: one sentence, every check, and the window."""

from collections import Counter
from collections.abc import Callable, Sequence

from ckaudit import __version__
from ckaudit.contract.report import SEVERITIES, VERSION, Check, Finding, Report, SkipReason, worst
from ckaudit.contract.violations import kinds_of
from ckaudit.material.counts import plural
from ckaudit.resume import catalogue
from ckaudit.resume.catalogue import COMMAND
from ckaudit.resume.examine import Examined
from ckaudit.resume.trends import alike

Seen = Sequence[Examined]
Need = tuple[Callable[[Seen], bool], SkipReason, str]


def _read(seen: Seen) -> bool:
    return any(each.forms for each in seen)


_READ: Need = (_read, "not_applicable", "no file that can be read without unpickling")
_PICKLED: Need = (lambda seen: any(each.pickled for each in seen), "not_applicable", "no pickle that could be read")
_ALIKE: Need = (lambda seen: bool(alike(seen)), "too_few_points", "fewer than three checkpoints alike")
_TIMED: Need = (
    lambda seen: bool(alike([each for each in seen if each.entry.seconds is not None])),
    "too_few_points",
    "fewer than three checkpoints alike of several files each",
)
_JUDGED: Need = (
    lambda seen: any(each.forms and not each.skipped for each in seen),
    "not_applicable",
    "no checkpoint of which every file could be read",
)
_STEPS: Need = (
    lambda seen: any(each.found.step is not None and "step" in each.entry.present for each in seen),
    "not_recorded",
    "no checkpoint says a step both in its name and inside",
)
NEEDS: dict[str, Need] = {
    catalogue.SHARD_MISSING.code: (
        lambda seen: any(each.indexed or each.found.is_folder for each in seen),
        "not_applicable",
        "no checkpoint of several files",
    ),
    catalogue.INDEX.code: (lambda seen: any(each.indexed for each in seen), "not_applicable", "no index and no .metadata"),
    catalogue.BAD_WEIGHTS.code: (
        lambda seen: any("weights" in each.scanned for each in seen),
        "not_recorded",
        "no weights that could be read",
    ),
    catalogue.BAD_OPTIMIZER.code: (
        lambda seen: any("optimizer" in each.scanned for each in seen),
        "not_recorded",
        "no optimizer state that could be read",
    ),
    catalogue.RUNS_CODE.code: _PICKLED,
    catalogue.FOREIGN_CLASS.code: _PICKLED,
    catalogue.UNNEEDED.code: _PICKLED,
    catalogue.COMPRESSED.code: _PICKLED,
    catalogue.NO_OPTIMIZER.code: _JUDGED,
    catalogue.NO_WEIGHTS.code: _JUDGED,
    catalogue.PART_MISSING.code: _JUDGED,
    catalogue.SIZE_JUMP.code: _ALIKE,
    catalogue.TIME_JUMP.code: _TIMED,
    catalogue.STEP_MISMATCH.code: _STEPS,
    catalogue.CHECKSUM.code: (
        lambda seen: any(each.compared for each in seen),
        "not_recorded",
        "no checksums: --checksums FILE, or FILE.sha256 beside",
    ),
}


def make_report(subject: str, seen: Seen, findings: Sequence[Finding], notes: list[str]) -> Report:
    """Put the report together: findings gravest first, a check for each kind, the checkpoints by step."""
    ordered = sorted(findings, key=lambda each: (SEVERITIES.index(each.severity), each.file or "", each.code, each.where or ""))
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command=COMMAND,
        subject=subject,
        verdict=_sentence(seen, ordered),
        severity=worst(ordered),
        findings=ordered,
        checks=_checks(seen, ordered),
        notes=notes,
        files=sum(len(each.found.files) for each in seen),
        resume_checkpoints=[each.entry for each in seen],
    )


def _checks(seen: Seen, findings: Sequence[Finding]) -> list[Check]:
    counts = Counter(finding.code for finding in findings)
    checks = []
    for code, kind in kinds_of(COMMAND).items():
        there, reason, detail = NEEDS.get(code, _READ)
        judged = counts[code] > 0 or there(seen)
        checks.append(
            Check(
                code=code,
                name=kind.name,
                title=kind.title,
                severity=kind.severity,
                outcome="failed" if counts[code] else "passed" if judged else "skipped",
                reason=None if judged else reason,
                detail=None if judged else detail,
                findings=counts[code],
            )
        )
    return checks


def _sentence(seen: Seen, findings: Sequence[Finding]) -> str:
    """Say how many are whole, and from which one to go on."""
    if not seen:
        return "no resume checkpoint, only what interrupted saves left"
    good = [each for each in seen if each.entry.ok]
    broken = [each for each in seen if each.entry.ok is False]
    unknown = len(seen) - len(good) - len(broken)
    total = plural(len(seen), "resume checkpoint")
    counts = (
        f"{len(broken):,} of {total} {'is' if len(broken) == 1 else 'are'} broken" if broken else f"{total}: {len(good):,} whole"
    )
    if unknown:
        counts += f", {unknown:,} could not be judged"
    if not good:
        return f"{counts}; none is known to be good"
    newest = max(good, key=_newness)
    step = "" if newest.entry.step is None else f" of step {newest.entry.step:,}"
    grave = any(each.file and each.file.startswith(newest.found.name) and each.severity in SEVERITIES[:3] for each in findings)
    return f"{counts}; the newest whole one is {newest.found.name}{step}" + (", with remarks" if grave else "")


def _newness(each: Examined) -> tuple[int, bool, float]:
    """Return what orders checkpoints: their step, then whether a training can go on from them, then their time."""
    step = -1 if each.entry.step is None else each.entry.step
    return step, "optimizer" in each.entry.present, each.entry.written or 0.0
