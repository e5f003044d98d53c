"""Reading of a run folder, one file, or a list of files: each file once, and only what was asked for."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.contract.explain import explain
from ckaudit.contract.io.codec import decode, decode_whole, is_deep
from ckaudit.contract.io.fast_jsonl import LineTable, Tabulator
from ckaudit.contract.io.files import BLOCK_BYTES, BrokenFile, read_bytes
from ckaudit.contract.io.folder import CheckpointFile, RunFiles, list_files, list_folder
from ckaudit.contract.io.jsonl import Lines, LogBudget, read_lines
from ckaudit.contract.salvage import salvage
from ckaudit.contract.schema.checkpoint import VERSION
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.scalars import is_number
from ckaudit.contract.unknown_fields import remove_unknown_words, unknown_words, with_open_words, word_finding
from ckaudit.contract.violations import UNKNOWN_VERSION
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.run.builder import RunBuilder
from ckaudit.run.column_builder import every_path
from ckaudit.run.line_budget import LineBudget
from ckaudit.run.run import Run
from ckaudit.run.run_facts import infer_own_targets, infer_policy, infer_sessions, infer_token_loss
from ckaudit.run.scalars import SessionLogs
from ckaudit.run.series import Series
from ckaudit.wording import plural

ANY_JSON = msgspec.json.Decoder()
ANY_KEY = "[...]"
"""In an error of the decoder: any name or position of an object or a list, so that equal errors may be of different places."""

EXPLAINED, MAX_EXPLAINED = 3, 100
"""Files with one and the same error that are explained, and the limit where they differ in the place of the error."""

MAX_SAMPLES = 128
"""Checkpoints of a long run whose weight samples are read, evenly spread: distances from the start need no more."""

Progress = Callable[[int, int], None]
Source = os.PathLike[str] | str | Sequence[Path] | RunFiles


@ignoring_float_errors
def read_run(
    source: Source, *, reads: Iterable[str] | None = None, progress: Progress | None = None, logs: SessionLogs | None = None
) -> Run:
    """Read one run.

    Args:
        source: A run folder, one file, a list of files, or a folder that is already listed.
        reads: Paths into the checkpoints, such as "gradients.*.norm"; other paths are not kept. Default: every number but grids
            and histograms. If it is given, weight samples are read from at most 128 checkpoints, evenly spread.
        progress: Called with the number of pieces done and their total; a piece is a file or a block of a long log.
        logs: Gathers the lines of each session separately, for callers that need them.

    Raises:
        UnreadableError: If there is nothing to read at all. A broken file among others is a finding of the run.

    >>> import ckaudit
    >>> ckaudit.read_run("fixtures/runs/healthy")
    <Run 'fixtures/runs/healthy': 36 files, 34 checkpoints, to step 2000>
    """
    folder = list_source(source)
    if folder.is_empty():
        raise UnreadableError(
            f"{_name(source)} holds no checkpoint and no scalars.jsonl",
            hint="Name a folder that a recorder wrote, or a log of those that `ckaudit import --formats` lists.",
        )
    reader = RunReader(folder, frozenset(every_path() if reads is None else reads), logs or SessionLogs())
    reader.take_all(progress, thin_samples=reads is not None)
    return reader.run(_name(source))


def read_manifest(source: Source) -> Manifest | None:
    """Return the run.json of a run; None if it is missing or unreadable."""
    reader = RunReader(list_source(source), frozenset(), SessionLogs())
    reader.take_manifest()
    return reader.manifest


def list_source(source: Source) -> RunFiles:
    """Return the files that `source` stands for."""
    if isinstance(source, RunFiles):
        return source
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        return list_folder(path) if path.is_dir() else list_files([path])
    return list_files([_path(path) for path in _listed(source)])


def _listed(source: object) -> Iterable[object]:
    return source if isinstance(source, Iterable) and not isinstance(source, bytes) else [source]


def _path(path: object) -> Path:
    if isinstance(path, str | os.PathLike):
        return Path(path)
    raise UsageError(f"{path!r} is no path of a run", hint="name a run folder, a file, or a list of files")


def _name(source: Source) -> str:
    if isinstance(source, RunFiles):
        return str(source.root)
    return os.fspath(source) if isinstance(source, str | os.PathLike) else f"{len(source)} files"


class RunReader:
    """State of reading one run, either at once or while it grows.

    Attributes:
        folder: The files of the run.
        builder: Gathers the checkpoints.
        log: Gathers the log lines.
        manifest: Contents of `run.json`, once it is read.
        findings: Problems of the files.
        notes: Notes on how the files were read.
    """

    def __init__(self, folder: RunFiles, paths: frozenset[str], logs: SessionLogs) -> None:
        """Begin with nothing read."""
        self.folder = folder
        self.builder = RunBuilder(paths)
        self.log = logs
        self.manifest: Manifest | None = None
        self.notes: list[str] = []
        self.findings: list[Finding] = []
        self._rank_paths = frozenset(path for path in paths if path.startswith("rank_facts."))
        self._rank_facts: dict[int, dict[str, Any]] = {}
        self._alike: dict[str, list[list[Finding]]] = {}
        self._salvaged_files = 0
        self._salvaged_steps: list[int] = []
        self._tabulator = Tabulator()
        self._budget = LineBudget()
        self._log_budget = LogBudget()

    def take_all(self, progress: Progress | None = None, *, thin_samples: bool = False) -> None:
        """Read every file of the folder.

        Args:
            progress: Called with the number of pieces done and their total.
            thin_samples: Read weight samples from at most 128 checkpoints.
        """
        self.take_manifest()
        files = [file for file in self.folder.checkpoints if file.rank is None]
        blocks = [max(1, -(-path.stat().st_size // BLOCK_BYTES)) if path.is_file() else 1 for path in self.folder.scalars]
        report = _reporter(progress, sum(blocks) + len(files))
        for index, path in enumerate(self.folder.scalars):
            self.take_log(path, report, range(sum(blocks[:index]), sum(blocks[: index + 1])))
        self.builder.stride = -(-len(files) // MAX_SAMPLES) if thin_samples else 1
        for index, file in enumerate(files):
            if file is files[-1]:
                self.builder.stride = 1
            self.take_checkpoint(file)
            report(sum(blocks) + index + 1)
        for file in self.folder.checkpoints:
            if file.rank is not None:
                self.take_rank(file)

    @ignoring_float_errors
    def run(self, name: str) -> Run:
        """Return everything read as a run."""
        log, branches = self.log.merged()
        sections, scalars = self.builder.series() | self._ranks(), log.series(self.builder.fill)
        manifest = infer_policy(self.manifest, sections, scalars.get("microbench_score"))
        manifest = infer_token_loss(manifest, sections, scalars.get("train_loss_raw"))
        return Run(
            name=name,
            manifest=infer_sessions(infer_own_targets(manifest, sections), self.log.starts, scalars),
            checkpoint_steps=np.setdiff1d(self.builder.steps, self._salvaged_steps),
            sections=sections,
            grids=self.builder.grids(),
            scalars=scalars,
            texts=log.texts(),
            branches={session: branch.series() for session, branch in branches.items()},
            events=self.builder.events,
            findings=tuple(self.findings),
            notes=(
                *((self.manifest.notes or ()) if self.manifest else ()),
                *self.notes,
                *self._notes_on_salvage(),
                *self.builder.notes,
                *log.notes,
                *_notes_on_words(log.words),
            ),
            files=sum(file.rank is None for file in self.folder.checkpoints)
            + len(self.folder.scalars)
            + (self.manifest is not None),
        )

    def _notes_on_salvage(self) -> list[str]:
        count = self._salvaged_files
        files = "1 file was" if count == 1 else f"{count:,} files were"
        return [f"{files} read without the values that violate the contract"] if count else []

    def _bytes(self, path: Path, shown: str) -> bytes | None:
        try:
            return read_bytes(path, shown, root=self.folder.root)
        except BrokenFile as broken:
            self.findings.append(broken.finding)
            return None

    def take_manifest(self) -> None:
        """Read `run.json`; if it cannot be read, the previous contents stay."""
        path = self.folder.manifest
        if path is not None and (data := self._bytes(path, path.name)) is not None:
            self.manifest = self._manifest_of(data, path.name) or self.manifest

    def _manifest_of(self, data: bytes, shown: str) -> Manifest | None:
        """Decode `run.json`; a word that its field does not know counts as missing, and a note says so."""
        reader = msgspec.json.Decoder(Manifest)
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            known = decode(data, reader).document
            open_parts = [known.config, known.model, known.decoding, known.data_manifest]
            return self._refused(data, shown, reader, "ck.run.v1") if is_deep(open_parts) else known
        document = self._decoded(data, shown, msgspec.json.Decoder(with_open_words(Manifest)), "ck.run.v1")
        if document is None:
            return None
        words = [*unknown_words(document)]
        remove_unknown_words(document, words)
        if words:
            more = f" (and {len(words) - 1} more)" if len(words) > 1 else ""
            self.notes.append(f"{word_finding(words[0], shown).message}{more}: it counts as not said")
        return document  # type: ignore[no-any-return]

    def take_lines(self, lines: Lines) -> None:
        """Add log lines that have been read."""
        if lines.table is not None:
            self.log.add_table(lines.table)
        for row in self._budget.rows(lines.rows):
            self.log.add(row)
        self.findings += lines.findings
        self.notes += lines.notes

    def over_budget(self, shown: str) -> list[Finding]:
        """Return findings on what was left out of a log since the last call because it exceeds the budget."""
        return self._budget.findings(shown)

    def take_log(self, path: Path, report: Callable[[int], None] = lambda _: None, pieces: range = range(0)) -> None:
        """Read a whole log; `report` is called after each of its pieces."""
        blocks = read_lines(path, path.name, root=self.folder.root, tabulate=self._tabulate, budget=self._log_budget)
        for done, lines in enumerate(blocks, pieces.start + 1):
            self.take_lines(lines)
            self._tabulator.learn(lines.rows)
            report(min(done, pieces.stop))
        self.findings += self.over_budget(path.name)

    def _tabulate(self, body: bytes) -> LineTable | None:
        table = self._tabulator.read(body)
        return table if table is not None and self.log.takes(table) else None

    def take_checkpoint(self, file: CheckpointFile) -> None:
        """Read one checkpoint; an unreadable one becomes a finding."""
        data, salvaged_before = self._bytes(file.path, file.shown), self._salvaged_files
        document = None if data is None else self._decoded(data, file.shown, self.builder.decoder, VERSION)
        if document is None:
            if file.step is not None:
                self.builder.fill.add(file.step, {"file_ok": 0.0})
            return
        if document.rank is not UNSET and file.rank is None and document.rank:
            return
        self.builder.take(document)
        if self._salvaged_files > salvaged_before:
            self._salvaged_steps.append(document.step)
        facts = {"file_ok": 1.0}
        with suppress(OSError):  # deleted since it was read
            facts["file_bytes"] = float(file.path.stat().st_size)
        self.builder.fill.add(document.step, facts if document.time is UNSET else facts | {"file_time": document.time})

    def take_rank(self, file: CheckpointFile) -> None:
        """Read the facts of one rank, if any of them are wanted."""
        if not self.builder.wants_rank_facts or (data := self._bytes(file.path, file.shown)) is None:
            return
        document = self._decoded(data, file.shown, self.builder.decoder, VERSION)
        if document is not None and document.rank_facts is not UNSET:
            self._rank_facts.setdefault(document.step, {})[f"rank.{file.rank}"] = document.rank_facts

    def _ranks(self) -> dict[str, Series]:
        """Return the series of the facts of all ranks, with a row per step."""
        if not self._rank_facts:
            return {}
        builder = RunBuilder(self._rank_paths)
        for step, ranks in self._rank_facts.items():
            builder.take_ranks(step, ranks)
        return builder.series()

    def _decoded(self, data: bytes, shown: str, reader: "msgspec.json.Decoder[Any]", version: str) -> Any:
        try:
            return decode(data, reader).document
        except msgspec.ValidationError as error:
            if (document := decode_whole(data, reader.type)) is not None:
                return document
            return self._refused(data, shown, reader, version, alike=str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._refused(data, shown, reader, version)

    def _refused(self, data: bytes, shown: str, reader: "msgspec.json.Decoder[Any]", version: str, *, alike: str = "") -> Any:
        """Explain why a document does not decode, of equal errors only the first few, and return what of it does."""
        known = self._alike.setdefault(alike, [])
        if alike and len(known) >= EXPLAINED:
            is_enough = ANY_KEY not in alike or len(known) >= MAX_EXPLAINED
            rest = self._salvaged(decode(data, ANY_JSON).document, reader, known[0], outwards=is_enough)
            if rest is not None or is_enough:
                self.findings.append(replace(known[0][0], file=shown))
                return rest
        explained_file = explain(data, shown, version)
        self.findings += explained_file.findings
        if not explained_file.findings:
            return msgspec.convert(explained_file.document, reader.type, strict=False)
        known.append(explained_file.findings)
        return self._salvaged(explained_file.document, reader, explained_file.findings)

    def _salvaged(
        self, document: Any, reader: "msgspec.json.Decoder[Any]", violations: Sequence[Finding], *, outwards: bool = True
    ) -> Any:
        """Return a refused document without the values that violate the contract; None if it is one of another contract."""
        if any(violation.code == UNKNOWN_VERSION.code for violation in violations):
            return None
        pointers = [violation.pointer or "" for violation in violations]
        rest = salvage(document, reader.type, pointers, outwards=outwards)
        self._salvaged_files += rest is not None
        return rest


def _notes_on_words(words: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Return a note for each name whose values can only be numbers, and that holds words or booleans; they are left out.

    >>> _notes_on_words({"grad_global_norm": {4: "false", 5: "false"}, "phase": {1: "warmup"}})
    ["grad_global_norm holds no number but a word at 2 steps, first 'false' at step 4; they count as not recorded"]
    """
    return [
        f"{name} holds no number but a word at {plural(len(by_step), 'step')}, first {by_step[min(by_step)][:40]!r} at step "
        f"{min(by_step)}; they count as not recorded"
        for name, by_step in words.items()
        if is_number(name) and by_step
    ]


def _reporter(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that is called with the number of pieces done."""
    return (lambda done: progress(done, total)) if progress else (lambda _: None)
