"""A conversion of files and whole run folders: what it reads, what it writes, and what it must not touch."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract import violations
from ckaudit.contract.io.convert import Encoding, convert
from ckaudit.contract.io.encode import SUFFIXES
from ckaudit.contract.io.files import BrokenFile, read_bytes
from ckaudit.contract.io.folder import list_folder, shown_name
from ckaudit.contract.io.write import write_atomic
from ckaudit.contract.schema.report import Finding
from ckaudit.errors import UnreadableError, UsageError

REFERENCE_NAME = "reference.npz"


class Job(Struct, frozen=True):
    """One file to write.

    Attributes:
        source: The file it comes from.
        target: The file it becomes.
        shown: The name of the source in findings.
        root: The folder that the source must not leave by a link.
        is_checkpoint: Whether it is converted; any other file of a run is copied.
    """

    source: Path
    target: Path
    shown: str
    root: Path | None
    is_checkpoint: bool


class Converted(Struct):
    """What a conversion did.

    Attributes:
        files: Files written.
        read: Bytes of the files that they came from.
        written: Bytes of the files written.
        broken: What is wrong with the files that were not.
    """

    files: int
    read: int
    written: int
    broken: list[Finding]


def plan_jobs(sources: Sequence[Path], folder: Path, suffix: str | None, *, force: bool = False) -> list[Job]:
    """Return every file to write: those of a single run folder into `folder` itself, those of several into one each.

    Args:
        sources: Run folders and checkpoint files.
        folder: Where files are written.
        suffix: How checkpoints are packed; None: as they are.
        force: Whether files may be replaced.

    Raises:
        UnreadableError: If a folder cannot be listed, or there is nothing to convert.
        UsageError: If a file would be written over, or two over each other, or a run into its own folder.
    """
    jobs = [job for source in sources for job in _jobs(source, folder, suffix, alone=len(sources) == 1)]
    if not jobs:
        raise UnreadableError(
            f"there is no checkpoint in {', '.join(map(str, sources))}", hint="Name a run folder or a checkpoint."
        )
    targets: dict[Path, Job] = {}
    for job in jobs:
        if (other := targets.setdefault(job.target, job)) is not job:
            raise UsageError(f"{other.shown} and {job.shown} would both become {job.target}", hint="convert them one by one")
    taken = [path for job in jobs for path in _in_the_way(job)]
    if taken and not force:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise UsageError(f"{taken[0]}{more} would be replaced", hint="name a new folder, or allow it with --force")
    return jobs


def _jobs(source: Path, folder: Path, suffix: str | None, *, alone: bool) -> Iterator[Job]:
    if not source.is_dir():
        target = folder / _with_suffix(source.name, suffix)
        yield Job(source, target, shown_name(str(source)), None, is_checkpoint=True)
        return
    run, into = list_folder(source), folder if alone else folder / source.resolve().name
    if into.exists() and into.samefile(source):
        raise UsageError(f"{source} cannot be converted into itself", hint="name another folder with -o")
    for file in (*run.checkpoints, *run.history):
        yield Job(file.path, into / _with_suffix(file.path.name, suffix), file.shown, source, is_checkpoint=True)
    others = [*run.scalars, *([run.manifest] if run.manifest else []), source / REFERENCE_NAME]
    for path in others:
        if path.exists():
            yield Job(path, into / path.name, shown_name(path.name), source, is_checkpoint=False)


def _with_suffix(name: str, suffix: str | None) -> str:
    held = _suffix_of(name)
    return name if suffix is None else name.removesuffix(held) + suffix


def _suffix_of(name: str) -> str:
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), "")


def _in_the_way(job: Job) -> list[Path]:
    """Return the files that this one would replace: of its own name or, for a checkpoint, of its step packed otherwise."""
    name = job.target.name
    names = [name.removesuffix(_suffix_of(name)) + suffix for suffix in SUFFIXES] if job.is_checkpoint else [name]
    return [path for name in names if (path := job.target.with_name(name)).exists()]


def run_jobs(jobs: Sequence[Job], encoding: Encoding, progress: Callable[[int, int], None] | None = None) -> Converted:
    """Write every file that can be written, and say what is wrong with the others.

    Args:
        jobs: The files.
        encoding: How checkpoints are written; their suffix is that of each target.
        progress: Is told after each file how many are done, of how many.

    Raises:
        OSError: If a file cannot be written.
    """
    done = Converted(0, 0, 0, [])
    for number, job in enumerate(jobs, 1):
        try:
            _run(job, encoding)
        except BrokenFile as error:
            done.broken.append(error.finding)
        else:
            done.files += 1
            done.read += job.source.stat().st_size
            done.written += job.target.stat().st_size
        if progress:
            progress(number, len(jobs))
    return done


def _run(job: Job, encoding: Encoding) -> None:
    if not job.is_checkpoint:
        _copy(job)
        return
    suffix = _suffix_of(job.target.name) or ".json"
    data = convert(read_bytes(job.source, job.shown, root=job.root), job.shown, replace(encoding, suffix=suffix))
    old = [path for path in _in_the_way(job) if path != job.target]
    job.target.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(job.target, data)
    for path in old:
        if not path.samefile(job.source):
            path.unlink()


def _copy(job: Job) -> None:
    if job.root is not None and not job.source.resolve().is_relative_to(job.root.resolve()):
        raise BrokenFile(violations.LINK_OUTSIDE.at(job.shown, "the file is a link that leads out of the folder"))
    if not job.source.is_file():
        raise BrokenFile(violations.UNREADABLE.at(job.shown, "this is not a regular file"))
    job.target.parent.mkdir(parents=True, exist_ok=True)
    temporary = job.target.with_name(f".{job.target.name}.part")
    try:
        shutil.copyfile(job.source, temporary)
        temporary.replace(job.target)
    finally:
        temporary.unlink(missing_ok=True)
