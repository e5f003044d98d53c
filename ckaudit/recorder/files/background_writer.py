"""Work that the training need not wait for, done in order by a thread of its own."""

import os
from collections.abc import Callable
from queue import Full, Queue
from threading import Thread
from time import monotonic

from ckaudit.recorder.guard import Guard

Job = tuple[str, Callable[[], None]]


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
        """
        if self._thread is None:
            self._thread = Thread(target=self._run, name="ckaudit writer", daemon=True)
            self._thread.start()
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
            with self._guard(what):
                job()
            self._began = None
            self._jobs.task_done()
