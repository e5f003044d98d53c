"""An engine of local processes. A killed process costs only its own run, and only if it happens twice."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from itertools import chain, islice
from multiprocessing import forkserver, parent_process, popen_forkserver, resource_tracker
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from types import ModuleType

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.source import RunSource

QUEUED = 2
"""Sources submitted per process, so that none waits for work."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables that limit numerical libraries to one thread: there are as many processes as cores already."""

KILLED = "the process that audited it was killed or crashed, twice: it may need more memory than there is"

LATE = "its audit took longer than {seconds}, and was ended"

LOOK_EVERY = 0.2
"""Seconds between two checks of time-outs."""

_max_bytes: int | None = None
"""Memory limit of a `LocalEngine` process, an equal share of the free memory; None: this is no such process."""

_begun: "SimpleQueue[Beginning] | None" = None
"""Queue to which a `LocalEngine` process reports the sources that it starts."""

Beginning = tuple[str, int]
"""A source's name, and the id of the process that audits it."""

Work = Callable[[RunSource], list[FleetRun]]
Running = dict["Future[list[FleetRun]]", RunSource]


def work(source: RunSource) -> list[FleetRun]:
    """Audit one source; the import is here so that the submitting process loads no rules."""
    from ckaudit.fleet.audit_run import audit_run
    from ckaudit.run.memory import memory_limit

    if _max_bytes is None:  # a caller outside the engine sets its own limit
        return audit_run(source)
    with memory_limit(_max_bytes):
        return audit_run(source)


class LocalEngine:
    """Audits in a pool of local processes.

    Attributes:
        workers: Number of processes.
    """

    def __init__(self, workers: int | None = None, *, seconds: float | None = None, work: Work = work) -> None:
        """Set up the engine.

        Args:
            workers: Number of processes; None: as many as this process may use cores.
            seconds: Time-out per source; None: no limit.
            work: Called with each source.
        """
        self.workers = workers or len(os.sched_getaffinity(0))
        self._seconds, self._work = seconds, work

    def results(self, sources: Iterable[RunSource]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source as they complete.

        A source in a killed process is retried once, alone. A source that timed out is not retried; sources that ran beside it
        are started again.
        """
        waiting = iter(sources)
        while True:
            lost, late = list[RunSource](), set[str]()
            yield from self._until_broken(waiting, lost, late)
            if not lost:
                return
            for source in lost:
                if source.name in late:
                    yield self._too_late(source)
                elif not late:
                    yield self._alone(source)
            waiting = chain([source for source in lost if late and source.name not in late], waiting)

    def _until_broken(self, waiting: Iterator[RunSource], lost: list[RunSource], late: set[str]) -> Iterator[list[FleetRun]]:
        """Yield rows until no source is left, or a process was killed.

        Args:
            waiting: Sources.
            lost: Gets the running sources when a process was killed.
            late: Gets the names of sources that timed out; their processes are killed.
        """
        with _pool(self.workers) as (pool, begun):
            running: Running = {}
            since: dict[Beginning, float] = {}
            try:
                self._hand_out(pool, islice(waiting, self.workers * QUEUED), running)
                while running:
                    done, _ = wait(running, LOOK_EVERY if self._seconds else None, return_when=FIRST_COMPLETED)
                    for future in done:
                        rows = future.result()
                        since = {begin: at for begin, at in since.items() if begin[0] != running[future].name}
                        del running[future]
                        self._hand_out(pool, islice(waiting, 1), running)
                        yield rows
                    late |= self._end_late(begun, since, {source.name for source in running.values()})
            except BrokenExecutor:
                lost += running.values()

    def _end_late(self, begun: "SimpleQueue[Beginning]", since: dict[Beginning, float], running: set[str]) -> set[str]:
        """Kill the processes of sources that timed out, and return the names of these sources."""
        while not begun.empty():
            begin = begun.get()
            if begin[0] in running:  # otherwise its rows arrived before the report of its start
                since[begin] = time.monotonic()
        if self._seconds is None:
            return set()
        ends = {begin for begin, at in since.items() if time.monotonic() - at > self._seconds}
        for begin in ends:
            with suppress(ProcessLookupError):
                os.kill(begin[1], signal.SIGKILL)
            del since[begin]
        return {name for name, _ in ends}

    def _hand_out(self, pool: ProcessPoolExecutor, sources: Iterable[RunSource], running: Running) -> None:
        """Submit sources to the pool; a source that a broken pool rejects counts as running too."""
        for source in sources:
            try:
                with interrupts_later():
                    running[pool.submit(_begin_work, self._work, source)] = source
            except BrokenExecutor as error:
                future: Future[list[FleetRun]] = Future()
                future.set_exception(error)
                running[future] = source

    def _alone(self, source: RunSource) -> list[FleetRun]:
        """Audit a source while no other is audited, and return its rows."""
        from ckaudit.fleet.audit_run import failed

        try:
            with _pool(1) as (pool, _):
                with interrupts_later():
                    future = pool.submit(_begin_work, self._work, source)
                return future.result(self._seconds)
        except BrokenExecutor:
            return [failed(source, KILLED)]
        except TimeoutError:
            return self._too_late(source)

    def _too_late(self, source: RunSource) -> list[FleetRun]:
        from ckaudit.fleet.audit_run import failed

        return [failed(source, LATE.format(seconds=f"{self._seconds:g} {'second' if self._seconds == 1 else 'seconds'}"))]


def _begin_work(work: Work, source: RunSource) -> list[FleetRun]:
    """Report the source and this process, then audit the source."""
    if _begun is not None:
        _begun.put((source.name, os.getpid()))
    return work(source)


@contextmanager
def _pool(workers: int) -> "Iterator[tuple[ProcessPoolExecutor, SimpleQueue[Beginning]]]":
    """Start single-threaded processes that end with this one, however it ends, and the queue for reports of their sources."""
    from ckaudit.run.memory import free_memory

    context = _Context()
    context.set_forkserver_preload(["ckaudit.fleet.engines.preload"])
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    _start_without_interrupts()
    begun: SimpleQueue[Beginning] = context.SimpleQueue()
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(free_memory() // workers, begun))
    try:
        yield pool, begun
    except BaseException:  # the caller has gone away: nobody waits for unfinished work
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.kill()
        raise
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        pool.shutdown(wait=True, cancel_futures=True)


class _Popen(popen_forkserver.Popen):
    """Starts a process that does not run the caller's script again.

    `multiprocessing` lets each process import the main script, which a script without a guard does not survive. Nothing of it is
    needed: processes of this engine run functions of this package on data of this package.
    """

    def _launch(self, process_obj: BaseProcess) -> None:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super()._launch(process_obj)  # type: ignore[misc]  # the stubs leave it out
        finally:
            sys.modules["__main__"] = main


class _Process(ForkServerProcess):
    """A process that `_Popen` starts."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> _Popen:  # noqa: N802  the name that multiprocessing calls
        return _Popen(process_obj)


class _Context(ForkServerContext):
    """The fork server's context, with such processes."""

    Process = _Process


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C until after the block: nobody would know a half-started process and could end it."""
    if threading.current_thread() is not threading.main_thread():  # other threads do not receive it
        yield
        return
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _start_without_interrupts() -> None:
    """Start the fork server with Ctrl-C blocked, which it and its children inherit: only this process handles it."""
    resource_tracker.ensure_running()  # the fork server needs it too, and starting it unblocks Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(max_bytes: int, begun: "SimpleQueue[Beginning]") -> None:
    """Ignore Ctrl-C, which the parent handles, and end with the parent: a pool's processes otherwise outlive a killed one."""
    from ckaudit.fleet.engines.preload import forget_garbage

    global _max_bytes, _begun
    _max_bytes, _begun = max_bytes, begun
    forget_garbage()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
