"""Could the training go on from what it saved: every resume checkpoint of a folder, as a report."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from ckaudit.contract.folder import shown_name
from ckaudit.contract.report import Finding, Report
from ckaudit.errors import UnreadableError
from ckaudit.resume import trends
from ckaudit.resume.catalogue import LEFT_OVER, SHARD_MISSING
from ckaudit.resume.checksums import read_list
from ckaudit.resume.examine import Examined, examine
from ckaudit.resume.find import Window, find
from ckaudit.resume.source import is_there
from ckaudit.resume.verdict import make_report

TRENDS = (trends.size_jumps, trends.time_jumps, trends.missing_files, trends.wrong_steps, trends.missing_parts)


class Checked(Struct):
    """A report, and what else was learned on the way.

    Attributes:
        report: The report.
        digests: SHA-256 by file, where digests were asked for or expected.
    """

    report: Report
    digests: dict[Path, str] = field(default_factory=dict)


def resume_check(
    path: Path, *, sums: Path | None = None, hashed: bool = False, progress: Callable[[int, int], None] | None = None
) -> Checked:
    """Judge every resume checkpoint in a folder, without unpickling anything.

    Args:
        path: The folder that a training saves to, one checkpoint's folder, or one file.
        sums: A list of SHA-256 digests as `sha256sum` writes it; lists beside the checkpoints are used as well.
        hashed: Whether the digest of every file is wanted.
        progress: Called with the number of bytes read, and of all.

    Raises:
        UnreadableError: Where there is no such folder, nothing in it is a checkpoint, or a list of digests is broken.
    """
    window = find(path)
    root = path if path.is_dir() else path.parent
    if not window.checkpoints and not window.left_over:
        raise UnreadableError(
            f"{path} holds no resume checkpoint",
            hint="Name the folder with .pt, .pth, .ckpt, .safetensors or .distcp files, or folders of them.",
        )
    expected = _expected(window, sums)
    total = sum(_size(file) for each in window.checkpoints for file in each.files) * (2 if hashed or expected else 1)
    tick = _ticker(progress, total)
    seen = [examine(each, root, expected, tick, hashed=hashed) for each in window.checkpoints]
    findings = [finding for each in seen for finding in each.findings]
    findings += [finding for trend in TRENDS for finding in trend(seen)]
    findings += [*_left_over(window, root), *_unfound(expected, seen, root)]
    digests = {file: found for each in seen for file, found in each.digests.items()}
    return Checked(make_report(shown_name(str(path)), seen, findings, _notes(window, seen, root)), digests)


def _expected(window: Window, sums: Path | None) -> dict[Path, str]:
    found: dict[Path, str] = {}
    for each in [*window.sums, *([] if sums is None else [sums])]:
        found |= read_list(each)
    return found


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


def _left_over(window: Window, root: Path) -> list[Finding]:
    return [
        LEFT_OVER.at(shown_name(path.relative_to(root).as_posix()), "has the name of a save that did not end")
        for path in window.left_over
    ]


def _unfound(expected: Mapping[Path, str], seen: Sequence[Examined], root: Path) -> list[Finding]:
    """Return the files that have a checksum and are gone, while others of their checkpoint are there.

    A window that rolls on removes whole checkpoints: these are no finding.
    """
    files = {Path(root, file).absolute() for each in seen for file in each.found.files}
    folders = {file.parent for each in seen if each.found.is_folder for file in (path.absolute() for path in each.found.files)}
    lost = [path for path in sorted(expected) if path not in files and path.parent in folders and not is_there(path)]
    return [
        SHARD_MISSING.at(shown_name(str(path.relative_to(root.absolute()))), "is missing, and has a checksum")
        for path in lost
        if path.is_relative_to(root.absolute())
    ]


def _notes(window: Window, seen: Sequence[Examined], root: Path) -> list[str]:
    notes = [f"{shown_name(path.relative_to(root).as_posix())} is a link to {target}" for path, target in window.links]
    notes += [f"{file} {reason}: not judged" for each in seen for file, reason in each.skipped]
    if window.cut:
        notes.append("there are more files than are looked at: name a smaller folder")
    if any(each.entry.seconds is not None for each in seen):
        notes.append("the time to write is from the first file's to the last file's time: what the first one took is not in it")
    if not any(each.compared for each in seen):
        notes.append("no checksums to compare with: --write-checksums FILE keeps them, --checksums FILE compares")
    return notes
