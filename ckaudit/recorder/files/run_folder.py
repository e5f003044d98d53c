"""The run folder as the recorder writes it: opened at a start, resumed where it exists, written by a thread of its own."""

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

MAX_HELD_LINES = 100_000  # lines kept while the disk does not take them: 30 MB
LINES_AT_ONCE = 200
TRIES = 3  # at the start and the end, where the training does not mind to wait a moment

_OPEN: "WeakSet[RunFolderWriter]" = WeakSet()


class RunFolderWriter:
    """Every file of one run. Each method may fail as files do; the recorder guards them.

    Attributes:
        session: Number of this start, from 0.
        steps_seen: Updates applied before this start.
        reference: The weights of step 0, where they are known.
        suffix: How checkpoints are packed.
        batches: The batches seen so far, in earlier starts too.
        write_seconds: What writing the latest checkpoint took of the training.
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
        self._held: deque[tuple[bytes, int]] = deque()  # lines that wait, with their sessions
        self._lines_taken = self._lines_written = 0
        self._barriers: deque[int] = deque()  # for each checkpoint that waits, how many lines come before it
        self._owed: dict[str, Callable[[], bytes]] = {}  # whole files that could not be written
        self._background = Background(guard)
        _OPEN.add(self)

    def open(self, facts: Mapping[str, Any]) -> None:
        """Make the folder ready, leftovers cleared, and begin a new session; one that cannot be used yet may be later."""
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
        """Make a folder out of whatever is there, once; nothing is written to one whose earlier run could not be read.

        Raises:
            OSError: If it cannot be used now.
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
        """Open the folder, take the reference of step 0, and describe the run; a part that fails leaves the others."""
        with self._guard("opening the folder", writes=True):
            self.open(facts)
        with self._guard("writing reference.npz", writes=True):
            self.take_reference(weights, take)
        with self._guard("writing run.json", writes=True):
            self.describe(**computed)
        self.wait_for_writes()

    @property
    def is_resume(self) -> bool:
        """Whether the training goes on with something; then the reference is read at the start."""
        return self._start_step > 0

    def describe(self, **computed: Any) -> None:
        """Set what the recorder itself knows of the run, and have `run.json` written."""
        for name, value in computed.items():
            setattr(self._manifest, name, value)
        self._submit_whole(MANIFEST_NAME, self._manifest_bytes, size=0)

    def _manifest_bytes(self) -> bytes:
        """Return `run.json` as it is to be: of other starts, one of which may have taken the run over, it says what they said."""
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
        """Keep which way the attention of layers is to look; a prefix may show later than the layer."""
        known = self._manifest.attention or {}
        new = {layer: way for layer, way in directions.items() if layer not in known or (way == "prefix" != known[layer])}
        if new:
            self.describe(attention={**known, **new})

    def set_session_facts(self, **facts: Any) -> None:
        """Set what is known of this session, None left out, and have `run.json` written."""
        for name, value in facts.items():
            if value is not None:
                setattr((self._manifest.sessions or [])[-1], name, value)
        self.describe()

    def take_reference(
        self, tensors: Mapping[str, Array], take: Callable[[Mapping[str, Array]], Reference] = Reference.take
    ) -> None:
        """Take the reference of step 0, or read it where the run started earlier."""
        path = self.path / REFERENCE_NAME
        if self._start_step == 0:
            self.reference = take(tensors)
            data = self.reference.to_bytes()
            self._submit_whole(REFERENCE_NAME, lambda: data, size=len(data))
        elif path.exists():
            self.reference = Reference.load(path)

    # What the thread does: files first that could not be written before, then lines, each in its turn.
    def _submit_whole(self, name: str, make: Callable[[], bytes], *, size: int) -> None:
        """Have a file written that is not lost where that fails: it is tried again before whatever is written next."""

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
        """Write what could not be written before, as far as that can be done now: its failure is counted already."""
        self._make_ready()
        with suppress(OSError):
            self._write_owed()
        if self._uploader is not None:
            with suppress(OSError, RuntimeError):
                self._uploader.retry_start()

    def append(self, step: int, now: float, values: Mapping[str, Any]) -> None:
        """Have one line of `scalars.jsonl` written.

        Where a line is, its checkpoint is too, whenever the process is killed: lines come behind what came before them.
        """
        if len(self._held) >= MAX_HELD_LINES:
            raise OSError(f"{MAX_HELD_LINES:,} lines wait for a disk that does not take them")
        session = self.session  # read first: the thread may find out about earlier starts meanwhile
        self._held.append((self._scalars.line(step, now, values), session))
        self._lines_taken += 1
        self._background.submit("writing scalars.jsonl", self._append_held)

    def _append_held(self) -> None:
        """Write the lines that wait, many at once where the disk is slow, up to the next checkpoint; what fails is kept."""
        self._catch_up()
        # How many there are is looked at before a checkpoint may come in between.
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
        """Turn one checkpoint to bytes, and have them written while the training goes on; `notes` are the rank's own."""
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
            if session != self.session:  # the earlier starts could not be read when it was taken
                checkpoint.session = self.session
                data = encode(checkpoint, suffix)
            write_atomic(self.path / checkpoint_file_name(checkpoint.step, suffix), data)
            if notes is not None:
                write_atomic(self.path / notes[0], notes[1])
        finally:
            self._barriers.popleft()

    def wait_for_writes(self, *, patience: float = 2.0) -> None:
        """Wait for what is being written, so many seconds at most, unless the disk does not answer."""
        self._background.wait_for_writes(patience=patience)

    @property
    def tensors(self) -> dict[str, TensorFacts]:
        """The tensor table."""
        return self._manifest.tensors or {}

    def close(self) -> None:
        """Wait for what is being written, and say in `run.json` that the session ended, and how well."""
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
        if self._uploader is not None:  # what an address does not take is whole all the same
            with guard("putting the run up", writes=True):
                self._uploader.raise_refusal()
        session.write_errors = guard.write_failures
        session.first_write_error = guard.first_write_failure or UNSET
        session.look_errors, session.first_look_error = guard.look_failures, guard.first_look_failure or UNSET
        self._owed[MANIFEST_NAME] = self._manifest_bytes
        _try(self._write_owed, TRIES)


def wait_for_writes(path: Path) -> None:
    """Wait until recorders of this process have written what is pending, so that the folder can be read at once."""
    for folder in [*_OPEN]:
        if folder.path == path.absolute():
            folder.wait_for_writes()


def _try(job: Callable[[], None], tries: int) -> None:
    """Do a job, again after a moment where it fails as files do."""
    for wait in (0.1 * 2**number for number in range(tries - 1)):
        with suppress(OSError):
            job()
            return
        sleep(wait)
    job()
