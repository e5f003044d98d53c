"""A background thread that runs jobs in order, within a memory limit, so that the training does not wait."""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Thread
from time import monotonic, sleep
from typing import NamedTuple

from ckaudit.recorder.guard import Guard

ROOM = 64 * 2**20
"""Bytes of files that may be pending: some hundred checkpoints of their usual size."""

MAX_JOBS = 100_000
"""Jobs that may be pending, most of them log lines: 50 MB."""

PAUSE = 0.05
"""Seconds between two polls for jobs. Waking a thread at every fast step would cost the step more than its log line does."""

LOOKS = 4
"""Polls without a job before the thread sleeps until it is woken; a step slower than that can afford to wake it."""

STUCK_AFTER = 10.0
"""Seconds after which a job counts as hanging."""

CLOSE_PATIENCE, LONGEST_CLOSE = 30.0, 600.0
"""Seconds that `close` waits while no job ends, and in all."""


class WriteJob(NamedTuple):
    """A pending job.

    Attributes:
        what: Name of the job in a failure message.
        do: Does the job.
        size: Bytes of the file that it keeps in memory; 0 for a line, or without a file.
    """

    what: str
    do: Callable[[], None]
    size: int


class Background:
    """Runs jobs one after another in a thread that starts with the first job.

    No call of the training waits for the disk, for the thread, or for the system to start one. A job for which there is no room
    is dropped and counted as a failure. If no thread can be started, the jobs run after the next `submit` or at the end.

    Args:
        guard: Counts failures.
        room: Bytes of files that pending jobs may keep in memory.
        stuck_after: Seconds after which a job counts as hanging.
    """

    def __init__(self, guard: Guard, *, room: int = ROOM, stuck_after: float = STUCK_AFTER) -> None:
        self._guard, self._room, self._stuck_after = guard, room, stuck_after
        self._jobs: deque[WriteJob] = deque()  # the first one is running
        self._bytes_taken = self._bytes_done = self._done = 0
        self._calls: SimpleQueue[None] = SimpleQueue()
        self._is_asleep = self._is_closing = False
        self._thread: Thread | None = None
        self._process = os.getpid()
        self._began: float | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether the running job seems to hang."""
        began = self._began
        return began is not None and monotonic() - began > self._stuck_after

    @property
    def is_idle(self) -> bool:
        """Whether every job is done."""
        return not self._jobs

    def submit(self, what: str, job: Callable[[], None], *, size: int = 0) -> None:
        """Queue a job, without waiting for anything.

        Args:
            what: Name of the job in a failure message.
            job: Does the job.
            size: Bytes of the file that it keeps in memory until then.

        Raises:
            TimeoutError: If pending jobs already fill the room.
        """
        if os.getpid() != self._process:
            return  # a forked process has no such thread, and must not write for its parent
        is_full = size and self._bytes_taken - self._bytes_done + size > self._room
        if self._jobs and (is_full or len(self._jobs) >= MAX_JOBS):
            raise TimeoutError("the disk has not taken what came before")
        self._bytes_taken += size
        self._jobs.append(WriteJob(what, job, size))
        if self._thread is None:
            self._start()
        if self._is_asleep:
            self._is_asleep = False
            self._calls.put(None)

    def _start(self) -> None:
        thread = Thread(target=self._run, name="ckaudit writer", daemon=True)
        self._is_closing = False
        try:
            thread.start()
        except RuntimeError as error:  # no thread available: the job waits, and the next one tries again
            self._guard.log("starting the thread that writes", error)
        else:
            self._thread = thread

    def wait_for_writes(self, *, patience: float = 2.0) -> None:
        """Wait until every job is done, for at most `patience` seconds; return at once if a job hangs."""
        end = monotonic() + patience
        self._calls.put(None)
        while self._jobs and self._thread is not None and not self.is_stuck and monotonic() < end:
            sleep(0.0005)

    def close(self, *, patience: float = CLOSE_PATIENCE) -> None:
        """Wait until all jobs are done; if no thread could be started, do them here.

        Raises:
            TimeoutError: If no job ends for `patience` seconds.
        """
        if os.getpid() != self._process:
            return
        thread, self._thread = self._thread, None
        if thread is None:
            self._work_off()
            return
        self._is_closing = True
        self._calls.put(None)
        if not self._ends(thread, patience):
            self._thread, self._is_closing = thread, False  # the thread continues if the disk responds again
            raise TimeoutError("the disk does not answer")

    def _ends(self, thread: Thread, patience: float) -> bool:
        """Wait for the thread to end, and tell whether it did."""
        longest, latest, done = monotonic() + LONGEST_CLOSE, monotonic(), self._done
        while thread.is_alive() and monotonic() < min(longest, latest + patience):
            thread.join(min(patience, 0.05))
            if self._done != done:
                latest, done = monotonic(), self._done
        return not thread.is_alive()

    def _run(self) -> None:
        while True:
            self._work_off()
            if self._is_closing:
                return
            if not self._find_work():
                self._sleep()

    def _find_work(self) -> bool:
        """Poll for jobs for a while, and tell whether there is one, or whether the thread was woken."""
        for _ in range(LOOKS):
            with suppress(Empty):
                self._calls.get(timeout=PAUSE)
                return True
            if self._jobs:
                return True
        return False

    def _sleep(self) -> None:
        self._is_asleep = True
        if not self._jobs and not self._is_closing:
            self._calls.get()
        self._is_asleep = False

    def _work_off(self) -> None:
        while self._jobs:
            job = self._jobs[0]
            self._began = monotonic()
            with self._guard(job.what, writes=True):
                job.do()
            self._began = None
            self._bytes_done += job.size
            self._done += 1
            self._jobs.popleft()
