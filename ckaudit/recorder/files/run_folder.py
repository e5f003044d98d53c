"""The run folder that the recorder writes: created at a start, continued at a resume, written by a background thread."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter, sleep, time
from typing import Any
from weakref import WeakSet

from msgspec import UNSET, DecodeError

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import (
    MANIFEST_NAME,
    REFERENCE_NAME,
    SCALARS_NAME,
    checkpoint_file_name,
    remove_stale,
    write_atomic,
)
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import AttentionDirection, Manifest, TensorFacts
from ckaudit.recorder.batch_facts import BatchesSeen
from ckaudit.recorder.files.background import Background
from ckaudit.recorder.files.manifest import begin, join_earlier, load, set_aside
from ckaudit.recorder.files.scalar_log import ScalarLogWriter, cut_torn_tail, last_value
from ckaudit.recorder.files.uploader import Uploader
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model.weight_movement import Reference
from ckaudit.recorder.stats.arrays import Array

MAX_HELD_LINES = 100_000  # pending lines while the disk takes none: 30 MB
LINES_AT_ONCE = 200
TRIES = 3  # at the start and the end, when the training can wait a moment

_OPEN: "WeakSet[RunFolderWriter]" = WeakSet()


class RunFolderWriter:
    """Writes every file of one run. Each method may raise `OSError`; the recorder guards them.

    Attributes:
        session: Number of this start, from 0.
        steps_seen: Updates applied before this start.
        reference: The weights of step 0, where they are known.
        suffix: File suffix of checkpoints, which says how they are compressed.
        batches: The batches seen so far, including earlier starts.
        write_seconds: Seconds of training time that writing the latest checkpoint took.
    """

    def __init__(self, path: Path, guard: Guard, *, suffix: str, start_step: int, address: str | None = None) -> None:
        self.path, self.session, self.steps_seen = path, 0, start_step
        self._uploader = Uploader(address) if address else None
        self.reference: Reference | None = None
        self.suffix, self.write_seconds = suffix, 0.0
        self.batches = BatchesSeen()
        self._guard, self._start_step = guard, start_step
        self._manifest = Manifest(schema_version="ck.run.v1")
        self._scalars = ScalarLogWriter(path / SCALARS_NAME, 0)
        self._lines, self._is_ready = path / SCALARS_NAME, False
        self._held: deque[tuple[bytes, int]] = deque()  # pending lines with their sessions
        self._lines_taken = self._lines_written = 0
        self._barriers: deque[int] = deque()  # for each pending checkpoint, how many lines come before it
        self._owed: dict[str, Callable[[], bytes]] = {}  # whole files whose write failed
        self._background = Background(guard)
        _OPEN.add(self)

    def open(self, facts: Mapping[str, Any]) -> None:
        """Prepare the folder and begin a new session; a folder that is not usable yet is tried again later."""
        if self._uploader is not None:
            with self._guard("preparing the way to the address", writes=True):
                self._uploader.open(is_resume=self._start_step > 0)
        self._manifest = begin(facts, self._guard, start=time())
        with self._guard("preparing the folder", writes=True):
            self._make_ready(tries=TRIES)
        if self._start_step:
            with self._guard("reading the lines of earlier starts"):
                seen = last_value(self._lines, "steps_seen", until=self._start_step)
                self.steps_seen = self._start_step if seen is None else int(seen)
                self.batches.recall(self._lines, until=self._start_step)

    def _make_ready(self, *, tries: int = 1) -> None:
        """Prepare the folder once; nothing is written before an earlier run in it has been read.

        Raises:
            OSError: If the folder cannot be used now.
        """
        if not self._is_ready:
            _try(self._open_folder, tries)

    def _open_folder(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with self._guard("clearing leftovers"):
            remove_stale(self.path)
        cut_torn_tail(self._lines)
        left_files = self._continue_earlier()
        self._is_ready = True
        if self._uploader is not None:
            with self._guard("preparing the way to the address", writes=True):
                self._uploader.begin(self._start_step, left_files)

    def _continue_earlier(self) -> set[str] | None:
        """Continue the sessions of earlier starts, and return the files that they left; None: there were none."""
        earlier, names = None, None
        try:
            earlier = load(self.path)
        except DecodeError as error:
            self._guard.failed("reading the earlier run.json", error, writes=True)
        before = len(earlier.sessions or []) if earlier is not None else 0
        if before:
            names = {path.name for path in self.path.iterdir()}
            set_aside(self.path, self._start_step, before)
        if earlier is not None:
            join_earlier(self._manifest, earlier, self._start_step)
        self.session = self._scalars.session = before
        return names

    def begin(
        self,
        facts: Mapping[str, Any],
        weights: Mapping[str, Array],
        take: Callable[[Mapping[str, Array]], Reference],
        **computed: Any,
    ) -> None:
        """Open the folder, take the reference of step 0, and describe the run; if one part fails, the others are still done."""
        with self._guard("opening the folder", writes=True):
            self.open(facts)
        with self._guard("writing reference.npz", writes=True):
            self.take_reference(weights, take)
        with self._guard("writing run.json", writes=True):
            self.describe(**computed)
        self.wait_for_writes()

    @property
    def is_resume(self) -> bool:
        """Whether the training resumes; then the reference is read at the start."""
        return self._start_step > 0

    def describe(self, **computed: Any) -> None:
        """Set the facts that the recorder knows itself, and have `run.json` written."""
        for name, value in computed.items():
            setattr(self._manifest, name, value)
        self._submit_whole(MANIFEST_NAME, self._manifest_bytes, size=0)

    def _manifest_bytes(self) -> bytes:
        """Return the new `run.json`; sessions of other starts, even later ones, keep what the file says."""
        try:
            written = load(self.path)
        except DecodeError:
            written = None
        mine, sessions = (self._manifest.sessions or [])[self.session], (written and written.sessions) or []
        if written is None or len(sessions) <= self.session:
            return encode(self._manifest)
        if sessions[self.session].start != mine.start:
            self._guard.log("keeping the run alone", OSError("another program writes to the same folder, and they mix"))
            return encode(self._manifest)
        latest = written if len(sessions) > self.session + 1 else self._manifest
        latest.sessions = [*sessions[: self.session], mine, *sessions[self.session + 1 :]]
        return encode(latest)

    def set_attention_directions(self, directions: Mapping[str, AttentionDirection]) -> None:
        """Keep the attention direction of layers; a prefix may be detected later than the layer."""
        known = self._manifest.attention or {}
        new = {layer: way for layer, way in directions.items() if layer not in known or (way == "prefix" != known[layer])}
        if new:
            self.describe(attention={**known, **new})

    def set_session_facts(self, **facts: Any) -> None:
        """Set facts of this session, without those that are None, and have `run.json` written."""
        for name, value in facts.items():
            if value is not None:
                setattr((self._manifest.sessions or [])[-1], name, value)
        self.describe()

    def take_reference(
        self, tensors: Mapping[str, Array], take: Callable[[Mapping[str, Array]], Reference] = Reference.take
    ) -> None:
        """Take the reference of step 0, or read it if the run started earlier."""
        path = self.path / REFERENCE_NAME
        if self._start_step == 0:
            self.reference = take(tensors)
            data = self.reference.to_bytes()
            self._submit_whole(REFERENCE_NAME, lambda: data, size=len(data))
        elif path.exists():
            self.reference = Reference.load(path)

    # The background thread: first files whose write failed before, then lines and checkpoints in order.
    def _submit_whole(self, name: str, make: Callable[[], bytes], *, size: int) -> None:
        """Have a file written; if that fails, it is tried again before the next write."""

        def write_file() -> None:
            self._owed[name] = make
            self._write_owed()

        self._background.submit(f"writing {name}", write_file, size=size)

    def _write_owed(self) -> None:
        self._make_ready()
        for name in [*self._owed]:
            make = self._owed.pop(name)
            try:
                write_atomic(self.path / name, make())
            except OSError:
                self._owed.setdefault(name, make)
                raise

    def _catch_up(self) -> None:
        """Retry what could not be written before; the failure is counted already."""
        self._make_ready()
        with suppress(OSError):
            self._write_owed()
        if self._uploader is not None:
            with suppress(OSError, RuntimeError):
                self._uploader.retry_start()

    def append(self, step: int, now: float, values: Mapping[str, Any]) -> None:
        """Have one line of `scalars.jsonl` written.

        Lines and checkpoints are written in order: a line in the log implies its checkpoint, whenever the process is killed.
        """
        if len(self._held) >= MAX_HELD_LINES:
            raise OSError(f"{MAX_HELD_LINES:,} lines wait for a disk that does not take them")
        session = self.session  # read first: meanwhile the thread may find earlier starts
        self._held.append((self._scalars.line(step, now, values), session))
        self._lines_taken += 1
        self._background.submit("writing scalars.jsonl", self._append_held)

    def _append_held(self) -> None:
        """Write pending lines up to the next checkpoint, many at once if the disk is slow; lines are kept if a write fails."""
        self._catch_up()
        # The number of lines is read before a checkpoint can be added.
        while count := min(len(self._held), LINES_AT_ONCE, self._lines_before_checkpoint()):
            lines = (self._scalars.in_session(*self._held[number]) for number in range(count))
            self._scalars.write(b"".join(lines))
            for _ in range(count):
                self._held.popleft()
            self._lines_written += count

    def _lines_before_checkpoint(self) -> int:
        for barrier in tuple(self._barriers):
            return barrier - self._lines_written
        return LINES_AT_ONCE

    def write(self, checkpoint: Checkpoint, notes: Checkpoint | None = None) -> None:
        """Encode one checkpoint, and have it written while the training continues; `notes` is the rank's own file."""
        start = perf_counter()
        notes_file = None if notes is None else (checkpoint_file_name(notes.step, rank=notes.rank or 0), encode(notes))
        session = self.session if checkpoint.session is UNSET else checkpoint.session
        data = encode(checkpoint, self.suffix)
        self._barriers.append(self._lines_taken)
        try:
            write_file = partial(self._write_checkpoint, checkpoint, data, session, self.suffix, notes_file)
            self._background.submit("writing a checkpoint", write_file, size=len(data))
        except TimeoutError:
            self._barriers.pop()
            raise
        self.write_seconds = perf_counter() - start

    def _write_checkpoint(
        self, checkpoint: Checkpoint, data: bytes, session: int, suffix: str, notes: tuple[str, bytes] | None
    ) -> None:
        try:
            self._catch_up()
            if session != self.session:  # earlier starts could not be read when the checkpoint was taken
                checkpoint.session = self.session
                data = encode(checkpoint, suffix)
            write_atomic(self.path / checkpoint_file_name(checkpoint.step, suffix), data)
            if notes is not None:
                write_atomic(self.path / notes[0], notes[1])
        finally:
            self._barriers.popleft()

    def wait_for_writes(self, *, patience: float = 2.0) -> None:
        """Wait for pending writes, for at most `patience` seconds, unless the disk does not respond."""
        self._background.wait_for_writes(patience=patience)

    @property
    def tensors(self) -> dict[str, TensorFacts]:
        """The tensor table."""
        return self._manifest.tensors or {}

    def close(self) -> None:
        """Wait for pending writes, and note the end of the session and its failures in `run.json`."""
        with self._guard("waiting for the disk", writes=True):
            self._background.close()
        try:
            if self._background.is_idle:
                self._end_session()
        finally:
            if self._uploader is not None:
                self._uploader.close()

    def _end_session(self) -> None:
        with self._guard("writing scalars.jsonl", writes=True):
            _try(self._append_held, TRIES)
        with self._guard("closing scalars.jsonl", writes=True):
            self._scalars.close()
        session = (self._manifest.sessions or [])[-1]
        guard, session.end = self._guard, time()
        session.checkpoint_ok = not guard.write_failures
        if self._uploader is not None:  # a refused upload does not make the local run incomplete
            with guard("putting the run up", writes=True):
                self._uploader.raise_refusal()
        session.write_errors = guard.write_failures
        session.first_write_error = guard.first_write_failure or UNSET
        session.look_errors, session.first_look_error = guard.look_failures, guard.first_look_failure or UNSET
        self._owed[MANIFEST_NAME] = self._manifest_bytes
        _try(self._write_owed, TRIES)


def wait_for_writes(path: Path) -> None:
    """Wait for pending writes of this process's recorders to a folder, so that it can be read at once."""
    for folder in [*_OPEN]:
        if folder.path == path.absolute():
            folder.wait_for_writes()


def _try(job: Callable[[], None], tries: int) -> None:
    """Do a job, and retry it after a moment if it raises `OSError`."""
    for wait in (0.1 * 2**number for number in range(tries - 1)):
        with suppress(OSError):
            job()
            return
        sleep(wait)
    job()
