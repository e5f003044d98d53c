"""The thread that uploads a run while it is recorded: the training waits for it only at its start and its end."""

import os
import shlex
import threading
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from time import monotonic
from weakref import WeakMethod

from ckaudit.recorder.files.remote_run import RemoteRun
from ckaudit.recorder.guard import logger
from ckaudit.remote.filesystem import is_passing
from ckaudit.remote.location import shown
from ckaudit.remote.put import Refused, in_words, pauses
from ckaudit.remote.spool import spool_of
from ckaudit.wording import plural

PAUSE = 5.0
"""Seconds between two scans of the run folder."""

START_PATIENCE, RESUME_PATIENCE = 10.0, 60.0
"""Seconds that a recorder waits for an unresponsive address: at a normal start, and at a resume that has no local run."""

CLOSE_PATIENCE, LONGEST_CLOSE = 30.0, 600.0
"""Seconds that closing a recorder waits while nothing is uploaded, and in all."""


class Uploader:
    """Uploads the files written to a run folder.

    Attributes:
        spool: The spool that holds the run.
        is_up: Whether everything was uploaded at the end.

    Args:
        address: The address of the run.
        rank: The rank whose files are uploaded.
    """

    def __init__(self, address: str, *, rank: int = 0) -> None:
        self.spool, self.is_up = spool_of(address), False
        self._run, self._rank, self._process = RemoteRun(self.spool, rank=rank), rank, os.getpid()
        self._thread: Thread | None = None
        self._is_prepared, self._start_step = False, 0
        self._local_names: set[str] | None = None
        self._lock: int | None = None
        self._begun, self._is_fetched, self._closing, self._ended, self._given_up = (Event() for _ in range(5))
        self._remote_names: set[str] = set()
        self._refusal = self._failure = ""
        self._reported: set[tuple[bool, type[BaseException]]] = set()

    def open(self, *, is_resume: bool = False, may_fetch: bool = True) -> None:
        """Start the thread, which replaces the run folder if the address has a newer run, and wait for that within limits.

        Args:
            is_resume: Whether the training resumes, so that it waits longer for the earlier run.
            may_fetch: Whether the run at the address is fetched; only the first rank does.

        Raises:
            OSError: If there is no room for a spool.
        """
        self._prepare()
        is_alone = is_resume and not (self.spool.run / "run.json").exists()
        self._start(may_fetch, is_alone)
        if may_fetch:
            self._wait(self._is_fetched, RESUME_PATIENCE if is_alone else START_PATIENCE, LONGEST_CLOSE)
            self._run.forbid_fetching()

    def _prepare(self) -> None:
        self.spool.make()
        self._lock = self.spool.lock() if self._lock is None else self._lock
        self.spool.note_unfinished(self._rank)
        self._run.load()
        self._is_prepared = True

    def _start(self, may_fetch: bool, is_alone: bool) -> None:
        thread = Thread(target=self._work, args=(may_fetch, is_alone), name="ckaudit uploader", daemon=True)
        thread.start()
        self._thread = thread

    def begin(self, start_step: int, local_names: set[str] | None) -> None:
        """Begin to upload, once the recorder has prepared the run folder.

        Args:
            start_step: The step that the run resumes from.
            local_names: The files in the run folder before it was prepared; None: it had no run.
        """
        self._start_step, self._local_names = start_step, local_names
        if self._is_prepared:
            self._set_aside()
        self._begun.set()

    def _set_aside(self) -> None:
        if self._local_names is not None:
            self._run.set_aside(self._start_step, self._remote_names, self._local_names)

    def retry_start(self) -> None:
        """Start the thread if that failed before, for example without a free thread; it uploads the pending files.

        Raises:
            OSError: If there is still no room for a spool.
            RuntimeError: If the system cannot start a thread.
        """
        if self._thread is not None or self._closing.is_set() or not self._begun.is_set():
            return
        if not self._is_prepared:
            self._prepare()
            self._set_aside()
        self._run.forbid_fetching()
        self._start(may_fetch=False, is_alone=False)

    def raise_refusal(self) -> None:
        """Raise the permanent error that keeps files from being uploaded.

        Raises:
            Refused: If there is such an error.
        """
        if self._refusal:
            raise Refused(f"{self._refusal}. {self._what_is_left()}")

    def close(self) -> None:
        """Upload the remaining files and end; if time runs out, log where they are and the command that uploads them."""
        if self._closing.is_set() or os.getpid() != self._process:
            return
        self._begun.set()
        try:
            self.retry_start()
        except (OSError, RuntimeError) as error:
            self._closing.set()
            logger.warning("%s is not complete (%s). %s", shown(self.spool.address), error, self._what_is_left())
            return
        was_refused = bool(self._refusal)
        self._closing.set()
        try:
            self._wait(self._ended, CLOSE_PATIENCE, LONGEST_CLOSE)
        finally:
            self._given_up.set()
            self._thread = None
            if self._lock is not None:
                os.close(self._lock)
            if not self.is_up and not was_refused:
                why = self._refusal or self._failure or "the server has not answered in time"
                logger.warning("%s is not complete (%s). %s", shown(self.spool.address), why, self._what_is_left())

    def _what_is_left(self) -> str:
        count = len(self._run.waiting())
        files = f"{plural(count, 'file')} {'waits' if count == 1 else 'wait'}"
        return f"{files} in {self.spool.run}: `ckaudit push {shlex.quote(shown(self.spool.address))}` puts them up"

    def _wait(self, event: Event, patience: float, longest: float) -> None:
        """Wait for an event while files are transferred."""
        end, latest, progress = monotonic() + longest, monotonic(), self._run.progress
        while not event.wait(0.05):
            if self._run.progress != progress:
                latest, progress = monotonic(), self._run.progress
            if monotonic() > min(end, latest + patience):
                return

    # The body of the thread.
    def _work(self, may_fetch: bool, is_patient: bool) -> None:
        if may_fetch:
            self._fetch_earlier_run(is_patient=is_patient)
        self._is_fetched.set()
        self._begun.wait()
        is_first, waits = True, pauses()
        while not self._given_up.is_set():
            is_last = self._closing.is_set()
            try:
                self._run.upload(recheck_all=is_first or is_last, may_lack_manifest=is_last)
                self._run.free()
            except Exception as error:  # noqa: BLE001  whatever it is, it may pass, and the training goes on
                self._failed(error)
                if is_last and self._refusal:
                    break
                (self._given_up if is_last else self._closing).wait(min(next(waits), 2.0) if is_last else next(waits))
                continue
            self._refusal, is_first, waits = "", False, pauses()
            if is_last:
                self.is_up = True
                with suppress(OSError):
                    self.spool.note_finished(self._rank)
                break
            self._closing.wait(PAUSE)
        self._ended.set()

    def _fetch_earlier_run(self, *, is_patient: bool) -> None:
        """Fetch the run at the address: once, or, if only the address has it, with retries while the recorder waits."""
        for wait in pauses(5.0, first=0.5):
            try:
                self._remote_names = self._run.fetch_earlier_run()
            except Exception as error:  # noqa: BLE001
                self._failed(error)
                if not (is_patient and is_passing(error)) or self._begun.wait(wait):
                    return
            else:
                where = shown(self.spool.address)
                if self._run.stale:
                    logger.warning("%s has been written by others: the run here is kept in %s", where, self._run.stale)
                return

    def _failed(self, error: Exception) -> None:
        is_refused = not is_passing(error)
        words = in_words(error, self.spool.address)
        self._failure, self._refusal = words, words if is_refused else ""
        kind = (is_refused, type(error))
        if kind in self._reported:
            return
        self._reported.add(kind)
        what = "does not take the run" if is_refused else "cannot be reached"
        then = "the training goes on, and the run is kept in"
        logger.warning("%s %s: %s; %s %s", shown(self.spool.address), what, words, then, self.spool.run)


def close_at_exit(close: Callable[[], None]) -> None:
    """Close a recorder at the end of the program, while its client can still start threads.

    `atexit` runs too late for that: a client could no longer resolve host names. Python's own thread pools end by the hook that
    is used here.
    """
    import concurrent.futures.thread  # noqa: F401  it registers its end when it is loaded: ours has to come before

    register = getattr(threading, "_register_atexit", None)
    reference = WeakMethod(close)

    def call() -> None:
        if (method := reference()) is not None:
            method()

    if register is not None:
        with suppress(RuntimeError):
            register(call)
