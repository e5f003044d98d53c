"""Whether a training could resume from its saved files: a report on every resume checkpoint of a folder."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import UNSET, Struct, field

from ckaudit import __version__
from ckaudit.contract.io.folder import refuse_shut, shown_name
from ckaudit.contract.schema.report import SEVERITIES, VERSION, Check, Finding, Report, SkipReason, gravest
from ckaudit.contract.violations import kinds_of
from ckaudit.errors import UnreadableError
from ckaudit.resume import catalogue, trends
from ckaudit.resume.catalogue import COMMAND, LEFT_OVER, SHARD_MISSING
from ckaudit.resume.checksums import read_list
from ckaudit.resume.examine import ExaminedCheckpoint, examine
from ckaudit.resume.find import Window, find
from ckaudit.resume.open_file import is_there
from ckaudit.resume.trends import checkpoints_of_one_form
from ckaudit.wording import plural

TRENDS = (trends.size_jumps, trends.time_jumps, trends.missing_files, trends.wrong_steps, trends.missing_parts)

Checkpoints = Sequence[ExaminedCheckpoint]

Need = tuple[Callable[[Checkpoints], bool], SkipReason, str]

LOG = "scalars-resume.jsonl"


_READ: Need = (
    lambda checkpoints: any(examined.forms for examined in checkpoints),
    "not_applicable",
    "no file that can be read without unpickling",
)

_PICKLED: Need = (
    lambda checkpoints: any(examined.pickled for examined in checkpoints),
    "not_applicable",
    "no pickle that could be read",
)

_ALIKE: Need = (
    lambda checkpoints: bool(checkpoints_of_one_form(checkpoints)),
    "too_few_points",
    "fewer than three checkpoints alike",
)

_TIMED: Need = (
    lambda checkpoints: bool(
        checkpoints_of_one_form([examined for examined in checkpoints if examined.entry.seconds is not None])
    ),
    "too_few_points",
    "fewer than three checkpoints alike of several files each",
)

_JUDGED: Need = (
    lambda checkpoints: any(examined.forms and not examined.skipped for examined in checkpoints),
    "not_applicable",
    "no checkpoint of which every file could be read",
)

_STEPS: Need = (
    lambda checkpoints: any(
        examined.checkpoint.step is not None and "step" in examined.entry.present for examined in checkpoints
    ),
    "not_recorded",
    "no checkpoint says a step both in its name and inside",
)

NEEDS: dict[str, Need] = {
    catalogue.SHARD_MISSING.code: (
        lambda checkpoints: any(examined.indexed or examined.checkpoint.is_folder for examined in checkpoints),
        "not_applicable",
        "no checkpoint of several files",
    ),
    catalogue.INDEX.code: (
        lambda checkpoints: any(examined.indexed for examined in checkpoints),
        "not_applicable",
        "no index and no .metadata",
    ),
    catalogue.BAD_WEIGHTS.code: (
        lambda checkpoints: any("weights" in examined.scanned for examined in checkpoints),
        "not_recorded",
        "no weights that could be read",
    ),
    catalogue.BAD_OPTIMIZER.code: (
        lambda checkpoints: any("optimizer" in examined.scanned for examined in checkpoints),
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
        lambda checkpoints: any(examined.compared for examined in checkpoints),
        "not_recorded",
        "no checksums: --checksums FILE, or FILE.sha256 beside",
    ),
}


class ResumeCheckResult(Struct):
    """The report of a check, and the digests of its files.

    Attributes:
        report: The report.
        digests: SHA-256 by file, if digests were requested or expected.
    """

    report: Report
    digests: dict[Path, str] = field(default_factory=dict)


def resume_check(
    path: Path, *, sums: Path | None = None, hashed: bool = False, progress: Callable[[int, int], None] | None = None
) -> ResumeCheckResult:
    """Judge every resume checkpoint in a folder, without unpickling anything.

    Args:
        path: The folder that a training saves to, the folder of one checkpoint, or one file.
        sums: A list of SHA-256 digests in the format of `sha256sum`; lists beside the checkpoints are used as well.
        hashed: Whether to compute the digest of every file.
        progress: Called with the number of bytes read and of all bytes.

    Raises:
        UnreadableError: If there is no such folder, nothing in it is a checkpoint, or a list of digests is broken.
    """
    window = find(path)
    root = path if path.is_dir() else path.parent
    if not window.checkpoints and not window.left_over:
        refuse_shut(root)
        raise UnreadableError(
            f"{path} holds no resume checkpoint",
            hint="Name the folder with .pt, .pth, .ckpt, .safetensors or .distcp files, or folders of them.",
        )
    expected: dict[Path, str] = {}
    for listed in [*window.sums, *([] if sums is None else [sums])]:
        expected |= read_list(listed)
    total = sum(_size(file) for checkpoint in window.checkpoints for file in checkpoint.files) * (2 if hashed or expected else 1)
    tick = _ticker(progress, total)
    checkpoints = [examine(checkpoint, root, expected, tick, hashed=hashed) for checkpoint in window.checkpoints]
    findings = [finding for examined in checkpoints for finding in examined.findings]
    findings += [finding for trend in TRENDS for finding in trend(checkpoints)]
    findings += [
        *[
            LEFT_OVER.at(shown_name(path.relative_to(root).as_posix()), "has the name of a save that did not end")
            for path in window.left_over
        ],
        *_unfound(expected, checkpoints, root),
    ]
    digests = {file: digest for examined in checkpoints for file, digest in examined.digests.items()}
    return ResumeCheckResult(
        make_report(shown_name(str(path)), checkpoints, findings, _notes(window, checkpoints, root)), digests
    )


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _ticker(progress: Callable[[int, int], None] | None, total: int) -> Callable[[int], None]:
    done = 0

    def tick(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress(min(done, total), total)

    return tick


def _unfound(expected: Mapping[Path, str], checkpoints: Sequence[ExaminedCheckpoint], root: Path) -> list[Finding]:
    """Return findings for missing files that have a checksum, if other files of their checkpoint exist.

    A rolling window of checkpoints deletes whole ones: these are no finding.
    """
    files = {Path(root, file).absolute() for examined in checkpoints for file in examined.checkpoint.files}
    folders = {
        file.parent
        for examined in checkpoints
        if examined.checkpoint.is_folder
        for file in (path.absolute() for path in examined.checkpoint.files)
    }
    lost = [path for path in sorted(expected) if path not in files and path.parent in folders and not is_there(path)]
    return [
        SHARD_MISSING.at(shown_name(str(path.relative_to(root.absolute()))), "is missing, and has a checksum")
        for path in lost
        if path.is_relative_to(root.absolute())
    ]


def _notes(window: Window, checkpoints: Sequence[ExaminedCheckpoint], root: Path) -> list[str]:
    notes = [f"{shown_name(path.relative_to(root).as_posix())} is a link to {target}" for path, target in window.links]
    notes += [f"{file} {reason}: not judged" for examined in checkpoints for file, reason in examined.skipped]
    if window.cut:
        notes.append("there are more files than are looked at: name a smaller folder")
    if any(examined.entry.seconds is not None for examined in checkpoints):
        notes.append("the time to write is from the first file's to the last file's time: what the first one took is not in it")
    if not any(examined.compared for examined in checkpoints):
        notes.append("no checksums to compare with: --write-checksums FILE keeps them, --checksums FILE compares")
    return notes


# From the examined checkpoints to the report: a summary sentence, every check, and the checkpoints by step.
def make_report(subject: str, checkpoints: Checkpoints, findings: Sequence[Finding], notes: list[str]) -> Report:
    """Build the report: findings by severity, a check for each kind of fault, the checkpoints by step."""
    ordered = sorted(
        findings, key=lambda finding: (SEVERITIES.index(finding.severity), finding.file or "", finding.code, finding.where or "")
    )
    return Report(
        schema_version=VERSION,
        tool=f"ckaudit {__version__}",
        command=COMMAND,
        subject=subject,
        verdict=_sentence(checkpoints, ordered),
        severity=gravest(finding.severity for finding in ordered),
        judged="nothing" if checkpoints and all(examined.entry.ok is None for examined in checkpoints) else None,
        findings=ordered,
        checks=_checks(checkpoints, ordered),
        notes=notes,
        files=sum(len(examined.checkpoint.files) for examined in checkpoints),
        resume_checkpoints=[examined.entry for examined in checkpoints],
    )


def _checks(checkpoints: Checkpoints, findings: Sequence[Finding]) -> list[Check]:
    counts = Counter(finding.code for finding in findings)
    checks = []
    for code, kind in kinds_of(COMMAND).items():
        is_present, reason, detail = NEEDS.get(code, _READ)
        judged = counts[code] > 0 or is_present(checkpoints)
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


def _sentence(checkpoints: Checkpoints, findings: Sequence[Finding]) -> str:
    """Return a sentence on how many checkpoints are intact, and which one to resume from."""
    if not checkpoints:
        return "no resume checkpoint, only what interrupted saves left"
    good = [examined for examined in checkpoints if examined.entry.ok]
    broken = [examined for examined in checkpoints if examined.entry.ok is False]
    unknown = len(checkpoints) - len(good) - len(broken)
    total = plural(len(checkpoints), "resume checkpoint")
    counts = (
        f"{len(broken):,} of {total} {'is' if len(broken) == 1 else 'are'} broken" if broken else f"{total}: {len(good):,} whole"
    )
    if unknown:
        counts += f", {unknown:,} could not be judged"
    if not good:
        return f"{counts}; none is known to be good"
    newest, able = max(good, key=_newness), [examined for examined in good if not _lacks(examined)]
    if not able:
        return f"{counts}; none of them can be gone on from: {_named(newest)}, the newest, has no {_lacks(newest)}"
    best = max(able, key=_newness)
    remarks = ", with remarks" if any(_is_about(finding, best) for finding in findings) else ""
    if best is newest or _newness(newest)[0] == _newness(best)[0]:
        return f"{counts}; the newest whole one is {_named(best)}{remarks}"
    return f"{counts}; the newest to go on from is {_named(best)}{remarks}: {_named(newest)} has no {_lacks(newest)}"


def _named(examined: ExaminedCheckpoint) -> str:
    """Return a checkpoint by name and step."""
    return examined.checkpoint.name + ("" if examined.entry.step is None else f" of step {examined.entry.step:,}")


def _lacks(examined: ExaminedCheckpoint) -> str:
    """Return which of the essential parts, weights and optimizer state, a checkpoint lacks; empty if it has both."""
    names = {"weights": "weights", "optimizer": "optimizer state"}
    return " and no ".join(name for part, name in names.items() if part not in examined.entry.present)


def _is_about(finding: Finding, examined: ExaminedCheckpoint) -> bool:
    """Tell whether a finding that is more than a note is about a checkpoint, or a file in it."""
    name = examined.checkpoint.name
    files = (finding.file or "", *finding.also)
    return finding.severity != "note" and any(file == name or file.startswith(f"{name}/") for file in files)


def _newness(examined: ExaminedCheckpoint) -> tuple[int, bool, float]:
    """Return the sort key of checkpoints: step, then whether a training can resume from it, then time."""
    step = -1 if examined.entry.step is None else examined.entry.step
    return step, not _lacks(examined), examined.entry.written or 0.0


# Facts of a run's resume checkpoints: checkpoint_ok, checkpoint_size and checkpoint_time by step.
def facts_by_step(report: Report) -> dict[int, Mapping[str, float]]:
    """Return the values that are known, by step (M61 to M63).

    Of two checkpoints of one step the broken one counts, because a run may resume from it; so do the larger size and the longer
    time. Checkpoints that could not be judged have no checkpoint_ok.
    """
    by_step: dict[int, dict[str, float]] = {}
    for checkpoint in report.resume_checkpoints or () if report.resume_checkpoints is not UNSET else ():
        if checkpoint.step is None:
            continue
        values = by_step.setdefault(checkpoint.step, {})
        if checkpoint.ok is not None:
            values["checkpoint_ok"] = min(float(checkpoint.ok), values.get("checkpoint_ok", 1.0))
        values["checkpoint_size"] = max(float(checkpoint.size), values.get("checkpoint_size", 0.0))
        if checkpoint.seconds is not None:
            values["checkpoint_time"] = max(checkpoint.seconds, values.get("checkpoint_time", 0.0))
    return {step: dict(values) for step, values in sorted(by_step.items())}
