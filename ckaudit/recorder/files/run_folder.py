"""The run folder as the recorder writes it: opened at a start, resumed where it exists, written by a thread of its own."""

import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Full, Queue
from threading import Thread
from time import monotonic, perf_counter, time
from typing import Any

from msgspec import UNSET

from ckaudit.contract.io.codec import encode
from ckaudit.contract.io.files import MANIFEST_NAME, checkpoint_file_name, remove_stale, write_atomic
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import AttentionDirection, Manifest, TensorFacts
from ckaudit.recorder.batches import BatchesSeen
from ckaudit.recorder.files.manifest import begin, load, save, set_aside
from ckaudit.recorder.files.scalar_log import SCALARS_NAME, ScalarLog, cut_torn_tail, last_value
from ckaudit.recorder.files.uploader import Uploader
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model.weight_movement import REFERENCE_NAME, Reference
from ckaudit.recorder.stats.arrays import Array

MAX_HELD_LINES = 100_000  # lines kept while the disk does not take them: 30 MB
Job = tuple[str, Callable[[], None]]


class RunFolder:
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
        self._scalars = ScalarLog(path / SCALARS_NAME, 0)
        self._held: deque[bytes] = deque()
        self._background = Background(guard)
        self._has_written = False  # a checkpoint since the last line

    def open(self, facts: Mapping[str, Any]) -> None:
        """Make the folder ready, leftovers cleared, and begin a new session; one that cannot be used yet may be later."""
        lines, earlier, here = self.path / SCALARS_NAME, None, None
        if self._uploader is not None:
            with self._guard("preparing the way to the address", writes=True):
                self._uploader.open(is_resume=self._start_step > 0)
        with self._guard("preparing the folder", writes=True):
            self.path.mkdir(parents=True, exist_ok=True)
            remove_stale(self.path)
            cut_torn_tail(lines)
        with self._guard("reading the earlier run.json", writes=True):
            earlier = load(self.path)
        self._manifest = begin(earlier, facts, self._guard, start=time(), start_step=self._start_step)
        self.session = len(self._manifest.sessions or []) - 1
        self._scalars = ScalarLog(lines, self.session)
        if self.session:
            with self._guard("setting earlier checkpoints aside", writes=True):
                here = {path.name for path in self.path.iterdir()}
                set_aside(self.path, self._start_step, self.session)
        if self._start_step:
            seen = last_value(lines, "steps_seen", until=self._start_step)
            self.steps_seen = self._start_step if seen is None else int(seen)
            self.batches.recall(lines, until=self._start_step)
        if self._uploader is not None:
            with self._guard("preparing the way to the address", writes=True):
                self._uploader.begin(self._start_step, here)

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

    def describe(self, *, later: bool = False, **computed: Any) -> None:
        """Set what the recorder itself knows of the run, and write `run.json`: now, or while the training goes on."""
        for name, value in computed.items():
            setattr(self._manifest, name, value)
        if later:
            data = encode(self._manifest)
            self._background.submit("writing run.json", lambda: write_atomic(self.path / MANIFEST_NAME, data))
        else:
            save(self.path, self._manifest)

    def set_attention_directions(self, directions: Mapping[str, AttentionDirection]) -> None:
        """Keep which way the attention of layers is to look; a prefix may show later than the layer."""
        known = self._manifest.attention or {}
        new = {layer: way for layer, way in directions.items() if layer not in known or (way == "prefix" != known[layer])}
        if new:
            self.describe(attention={**known, **new}, later=True)

    def set_session_facts(self, **facts: Any) -> None:
        """Set what is known of this session, None left out, and write `run.json` while the training goes on."""
        for name, value in facts.items():
            if value is not None:
                setattr((self._manifest.sessions or [])[-1], name, value)
        self.describe(later=True)

    def take_reference(
        self, tensors: Mapping[str, Array], take: Callable[[Mapping[str, Array]], Reference] = Reference.take
    ) -> None:
        """Take the reference of step 0, or read it where the run started earlier."""
        path = self.path / REFERENCE_NAME
        if self._start_step == 0:
            self.reference = take(tensors)
            self.reference.save(path)
        elif path.exists():
            self.reference = Reference.load(path)

    def append(self, step: int, now: float, values: Mapping[str, Any]) -> None:
        """Write one line of `scalars.jsonl`; where the disk does not answer, it is kept.

        Where a line is, its checkpoint is too, whenever the process is killed: the line waits for it, and so does the next.
        """
        if len(self._held) >= MAX_HELD_LINES:
            raise OSError(f"{MAX_HELD_LINES:,} lines wait for a disk that does not take them")
        self._held.append(self._scalars.line(step, now, values))
        if self._has_written:
            self._has_written = False
            self._background.submit("writing scalars.jsonl", self._append_held)
        elif self._background.is_idle():
            self._append_held()

    def append_at_once(self, step: int, now: float, values: Mapping[str, Any]) -> None:
        """Write one line of `scalars.jsonl` where the folder is not busy; one that fails is kept."""
        line = self._scalars.line(step, now, values)
        try:
            self._scalars.write(line)
        except OSError:
            self._held.append(line)
            raise

    @property
    def is_busy(self) -> bool:
        """Whether a line could not be written at once."""
        return self._has_written or bool(self._held) or self._background.is_working

    def _append_held(self) -> None:
        while self._held:
            self._scalars.write(self._held[0])
            self._held.popleft()

    def write(self, checkpoint: Checkpoint, notes: Checkpoint | None = None) -> None:
        """Turn one checkpoint to bytes, and have them written while the training goes on; `notes` are the rank's own."""
        start = perf_counter()
        notes_file = None if notes is None else (checkpoint_file_name(notes.step, rank=notes.rank or 0), encode(notes))
        path = self.path / checkpoint_file_name(checkpoint.step, self.suffix)
        data = encode(checkpoint, self.suffix)

        def put_down() -> None:
            write_atomic(path, data)
            if notes_file is not None:
                write_atomic(self.path / notes_file[0], notes_file[1])

        self._background.submit("writing a checkpoint", put_down)
        self.write_seconds = perf_counter() - start
        self._has_written = True

    def settle(self) -> None:
        """Wait for what is being written, unless the disk does not answer."""
        self._background.is_idle()

    @property
    def tensors(self) -> dict[str, TensorFacts]:
        """The tensor table."""
        return self._manifest.tensors or {}

    def close(self) -> None:
        """Wait for what is being written, and say in `run.json` that the session ended, and how well."""
        with self._guard("waiting for the disk", writes=True):
            self._background.close()
        try:
            if not self._background.is_stuck:
                self._end_session()
        finally:
            if self._uploader is not None:
                self._uploader.close()

    def _end_session(self) -> None:
        with self._guard("writing scalars.jsonl", writes=True):
            self._append_held()
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
        save(self.path, self._manifest)


# Work that the training need not wait for, done in order by a thread of its own.
class Background:
    """Runs jobs one after another in a thread that starts with the first of them.

    A thread that hangs, on a file system that does not answer, holds nothing up: what finds no room is given up and counted.

    Args:
        guard: Counts what fails.
        room: Jobs that may wait; each keeps its bytes in memory.
        patience: Seconds that a new job waits for room. A disk that is merely slow has written one by then.
        stuck_after: Seconds after which a job that does not end is taken to hang.
    """

    def __init__(self, guard: Guard, *, room: int = 2, patience: float = 2.0, stuck_after: float = 10.0) -> None:
        self._guard, self._patience, self._stuck_after = guard, patience, stuck_after
        self._jobs: Queue[Job | None] = Queue(room)
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._began: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether the job under way seems to hang."""
        began = self._began
        return began is not None and monotonic() - began > self._stuck_after

    @property
    def is_working(self) -> bool:
        """Whether there are jobs that are not done."""
        return bool(self._jobs.unfinished_tasks)

    def submit(self, what: str, job: Callable[[], None]) -> None:
        """Have a job done later; `what` names it where it fails.

        Raises:
            TimeoutError: If those before it hang.
            RuntimeError: If the system starts no thread; the next job tries again.
        """
        if self._thread is None:
            thread = Thread(target=self._run, name="ckaudit writer", daemon=True)
            thread.start()
            self._thread = thread
        try:
            self._jobs.put((what, job), timeout=0 if self.is_stuck else self._patience)
        except Full:
            raise TimeoutError("the disk has not taken what came before") from None

    def is_idle(self) -> bool:
        """Wait for the jobs under way, unless they hang, and tell whether all are done."""
        if not self._jobs.unfinished_tasks:
            return True
        if self.is_stuck:
            return False
        with self._jobs.all_tasks_done:
            return self._jobs.all_tasks_done.wait_for(lambda: not self._jobs.unfinished_tasks, self._patience)

    def close(self, *, patience: float = 30.0) -> None:
        """Wait until all jobs are done.

        Raises:
            TimeoutError: If one of them hangs for so many seconds.
        """
        thread, self._thread = self._thread, None
        if thread is None or os.getpid() != self._process:
            return
        deadline = monotonic() + patience
        try:
            self._jobs.put(None, timeout=patience)
        except Full:
            raise TimeoutError("the disk does not answer") from None
        thread.join(max(0.0, deadline - monotonic()))
        if thread.is_alive():
            raise TimeoutError("the disk does not answer")

    def _run(self) -> None:
        while (work := self._jobs.get()) is not None:
            what, job = work
            self._began = monotonic()
            with self._guard(what, writes=True):
                job()
            self._began = None
            self._jobs.task_done()
        self._jobs.task_done()  # or what comes after an end would wait for it
