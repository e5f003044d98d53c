"""Conversion of checkpoints between the encodings of the contract: one document, or the files of whole run folders.

Unknown content is unchanged.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract import violations
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.codec import SUFFIXES, decode, encode, significant
from ckaudit.contract.io.files import REFERENCE_NAME, BrokenFile, read_bytes, replacing, write_atomic
from ckaudit.contract.io.folder import list_folder, shown_name
from ckaudit.contract.io.grids import GridEncoding, encode_grid, encode_grids, unpack
from ckaudit.contract.schema.checkpoint import GRID, QK_GRIDS, PackedGrid
from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Finding
from ckaudit.errors import UnreadableError, UsageError

HistogramEncoding = Literal["range", "edges"]
SPREAD = ("weights", "gradients", "activations")

Document = dict[str, Any]


class Encoding(Struct, frozen=True, kw_only=True):
    """Target encoding of a checkpoint; None keeps that of the file.

    Attributes:
        grids: "q8" bytes, with an error of at most half a step, (max - min) / 510; "nested" numbers; or "none".
        histogram: Bins as one "range" if they are equally wide, or as "edges".
        digits: Significant digits of nested grids, edges and percentiles; None: all digits.
        suffix: ".json", ".json.gz" or ".json.zst".
    """

    grids: GridEncoding | None = None
    histogram: HistogramEncoding | None = None
    digits: int | None = None
    suffix: str = ".json"


def convert(data: bytes, file: str, encoding: Encoding) -> bytes:
    """Return a checkpoint in another encoding.

    Args:
        data: Its text, unpacked.
        file: Its name in findings.
        encoding: How to write it.

    Raises:
        BrokenFile: If it is not a checkpoint, or would lose something, with the finding that explains it.
    """
    checked = check_checkpoint(data, file)
    lossy = [finding for finding in checked.findings if finding.code == violations.DUPLICATE_KEY.code]
    if checked.document is None or lossy:
        raise BrokenFile((lossy or checked.findings)[0])
    text = decode(data, msgspec.json.Decoder(msgspec.Raw)).text
    # Python's own parser preserves integers of any length and every bit of floats.
    document: Document = json.loads(text)
    try:
        rewrite(document, encoding)
        return encode(document, encoding.suffix)
    except (ValueError, OverflowError) as error:
        raise BrokenFile(violations.WRONG_TYPE.at(file, f"cannot be written in another encoding: {error}")) from None


def rewrite(document: Document, encoding: Encoding) -> None:
    """Change grids, histograms and percentiles of a plain document in place; everything else stays."""
    lost = [path for path, entry, name in _grids(document) if _rewrite_grid(entry, name, encoding)]
    if lost:
        document["left_out"] = list(dict.fromkeys([*document.get("left_out", []), *lost]))
    for section in SPREAD:
        for entry in document.get(section, {}).values():
            if "histogram" in entry:
                entry["histogram"]["bins"] = _bins(entry["histogram"], encoding)
            if "percentiles" in entry and encoding.digits is not None:
                entry["percentiles"] = rounded(entry["percentiles"], encoding.digits)


def _grids(document: Document) -> Iterator[tuple[str, Document, str]]:
    """Yield each grid as its path, the entry that holds it, and its name there."""
    for section in ("weights", "gradients"):
        yield from ((f"{section}.*.{GRID}", entry, GRID) for entry in document.get(section, {}).values() if GRID in entry)
    for entry in document.get("attention", {}).values():
        yield from ((f"attention.*.{name}", entry, name) for name in QK_GRIDS if name in entry)


def _rewrite_grid(entry: Document, name: str, encoding: Encoding) -> bool:
    """Write one grid again, and tell whether it was left out."""
    if encoding.grids == "none":
        del entry[name]
        return True
    grid, held = entry[name], _encoding_of(entry[name])
    kind = encoding.grids or held
    if kind != "mixed" and (kind != held or (kind == "nested" and encoding.digits is not None)):
        write = encode_grids if name in QK_GRIDS else encode_grid
        entry[name] = msgspec.to_builtins(write(unpack(_typed(grid)), kind, encoding.digits))
    return False


def _encoding_of(grid: Any) -> Literal["q8", "nested", "mixed"]:
    """Return the encoding of a grid or a stack of grids."""
    packed = [isinstance(matrix, dict) for matrix in ([grid] if isinstance(grid, dict) else grid)]
    return "nested" if not any(packed) else "q8" if all(packed) else "mixed"


def _typed(grid: Any) -> Any:
    if isinstance(grid, dict):
        return msgspec.convert(grid, PackedGrid)
    if any(isinstance(matrix, dict) for matrix in grid):
        return [unpack(_typed(matrix)) for matrix in grid]
    return grid


def _bins(histogram: Document, encoding: Encoding) -> Any:
    """Return the bins of a histogram in the target encoding."""
    bins, count = histogram["bins"], len(histogram["counts"])
    if encoding.histogram == "edges" and isinstance(bins, dict):
        low, high = map(float, bins["range"])
        # Ends that are not finite, or too far apart, have no edges in between.
        bins = np.linspace(low, high, bins["count"] + 1).tolist() if math.isfinite(high - low) else bins
    elif encoding.histogram == "range" and isinstance(bins, list):
        ends = equal_range(bins, count, encoding.digits)
        bins = bins if ends is None else {"range": list(ends), "count": count}
    if encoding.digits is None or isinstance(bins, dict):
        return bins
    shorter = rounded(bins, encoding.digits)
    # Edges that rounding would make equal keep their digits.
    return shorter if len(set(shorter)) == len(set(bins)) else bins


def equal_range(bins: list[Number], count: int, digits: int | None, *, tolerance: float = 1e-9) -> tuple[float, float] | None:
    """Return the ends of equally wide bins; None if they are not equal, so that a range would lose something.

    Args:
        bins: Their n+1 edges or n centres.
        count: Their number, n.
        digits: Digits to which the bins are or may be rounded.
        tolerance: Largest distance from equal spacing, relative to the width of all bins.

    >>> equal_range([0.0, 0.5, 1.0], 2, None), equal_range([0.25, 0.75], 2, None), equal_range([0.0, 0.1, 1.0], 2, None)
    ((0.0, 1.0), (0.0, 1.0), None)
    """
    places = np.array(bins, dtype=np.float64)
    if len(places) < 2 or not np.isfinite(places).all() or not places[-1] > places[0]:
        return None
    off = np.abs(places - np.linspace(places[0], places[-1], len(places)))
    allowed = np.full(len(places), tolerance * (places[-1] - places[0]))
    if digits is not None:
        allowed = np.maximum(allowed, 10.0 ** (1 - digits) * np.abs(places).max())
        allowed = np.minimum(allowed, (places[-1] - places[0]) / (4 * len(places)))
    if (off > allowed).any():
        return None
    half = (places[-1] - places[0]) / (len(places) - 1) / 2 if len(places) == count else 0.0
    return float(places[0] - half), float(places[-1] + half)


def rounded(values: list[Number], digits: int) -> list[Number]:
    """Return numbers with this many significant digits, and words unchanged."""
    return [value if isinstance(value, str) or not math.isfinite(value) else significant([value], digits)[0] for value in values]


class ConversionJob(Struct, frozen=True):
    """One file to convert or copy.

    Attributes:
        source: The source file.
        target: The target file.
        shown: The name of the source in findings.
        root: Folder that the source must not leave through a link.
        is_checkpoint: Whether it is a checkpoint to convert; other files of a run are copied.
    """

    source: Path
    target: Path
    shown: str
    root: Path | None
    is_checkpoint: bool


class Converted(Struct):
    """Result of a conversion.

    Attributes:
        files: Number of written files.
        read: Bytes of their source files.
        written: Bytes of the written files.
        broken: Findings on the files that were not written.
    """

    files: int
    read: int
    written: int
    broken: list[Finding]


def plan_jobs(sources: Sequence[Path], folder: Path, suffix: str | None, *, force: bool = False) -> list[ConversionJob]:
    """Return a job per file: a single run folder goes into `folder` itself, several into a subfolder each.

    Args:
        sources: Run folders and checkpoint files.
        folder: Target folder.
        suffix: Suffix of the checkpoints; None: unchanged.
        force: Whether existing files may be replaced.

    Raises:
        UnreadableError: If a folder cannot be listed, or there is nothing to convert.
        UsageError: If a file would be overwritten, two files would have the same target, or a run would go into its own folder.
    """
    jobs = [job for source in sources for job in _jobs(source, folder, suffix, alone=len(sources) == 1)]
    if not jobs:
        raise UnreadableError(
            f"there is no checkpoint in {', '.join(map(str, sources))}", hint="Name a run folder or a checkpoint."
        )
    targets: dict[Path, ConversionJob] = {}
    for job in jobs:
        if (other := targets.setdefault(job.target, job)) is not job:
            raise UsageError(f"{other.shown} and {job.shown} would both become {job.target}", hint="convert them one by one")
    taken = [path for job in jobs for path in _in_the_way(job)]
    if taken and not force:
        more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
        raise UsageError(f"{taken[0]}{more} would be replaced", hint="name a new folder, or allow it with --force")
    return jobs


def _jobs(source: Path, folder: Path, suffix: str | None, *, alone: bool) -> Iterator[ConversionJob]:
    if not source.is_dir():
        target = folder / _with_suffix(source.name, suffix)
        yield ConversionJob(source, target, shown_name(str(source)), None, is_checkpoint=True)
        return
    run, into = list_folder(source), folder if alone else folder / source.resolve().name
    if into.exists() and into.samefile(source):
        raise UsageError(f"{source} cannot be converted into itself", hint="name another folder with -o")
    for file in (*run.checkpoints, *run.history):
        yield ConversionJob(file.path, into / _with_suffix(file.path.name, suffix), file.shown, source, is_checkpoint=True)
    others = [*run.scalars, *([run.manifest] if run.manifest else []), source / REFERENCE_NAME]
    for path in others:
        if path.exists():
            yield ConversionJob(path, into / path.name, shown_name(path.name), source, is_checkpoint=False)


def _with_suffix(name: str, suffix: str | None) -> str:
    held = _suffix_of(name)
    return name if suffix is None else name.removesuffix(held) + suffix


def _suffix_of(name: str) -> str:
    return next((suffix for suffix in sorted(SUFFIXES, key=len, reverse=True) if name.endswith(suffix)), "")


def _in_the_way(job: ConversionJob) -> list[Path]:
    """Return the files that a job would replace: those of its name or, for a checkpoint, of its name with another suffix."""
    name = job.target.name
    names = [name.removesuffix(_suffix_of(name)) + suffix for suffix in SUFFIXES] if job.is_checkpoint else [name]
    return [path for name in names if (path := job.target.with_name(name)).exists()]


def run_jobs(jobs: Sequence[ConversionJob], encoding: Encoding, progress: Callable[[int, int], None] | None = None) -> Converted:
    """Write every file that can be written, and report what is wrong with the others.

    Args:
        jobs: The files.
        encoding: Encoding of checkpoints; the suffix comes from each target.
        progress: Called after each file with the number of files done and their total.

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


def _run(job: ConversionJob, encoding: Encoding) -> None:
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


def _copy(job: ConversionJob) -> None:
    if job.root is not None and not job.source.resolve().is_relative_to(job.root.resolve()):
        raise BrokenFile(violations.LINK_OUTSIDE.at(job.shown, "the file is a link that leads out of the folder"))
    if not job.source.is_file():
        raise BrokenFile(violations.UNREADABLE.at(job.shown, "is not a regular file"))
    job.target.parent.mkdir(parents=True, exist_ok=True)
    with job.source.open("rb") as source, replacing(job.target) as copy:
        shutil.copyfileobj(source, copy)
