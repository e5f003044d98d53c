"""The processes of this machine. One that is killed costs nothing but its own run, and that only if it happens twice."""

import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context, parent_process

from ckaudit.contract.schema.fleet import FleetRun
from ckaudit.fleet.source import Source

QUEUED = 2
"""Sources handed out for each process, so that none waits for work."""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What keeps a numerical library to one thread: there are as many processes as cores already."""

KILLED = "the process that audited it was killed or crashed, twice: it may need more memory than there is"

_max_bytes: int | None = None
"""What a process of `LocalEngine` may take, an equal part of what is free; None: this is none of them."""

Work = Callable[[Source], list[FleetRun]]
Running = dict["Future[list[FleetRun]]", Source]


def work(source: Source) -> list[FleetRun]:
    """Audit one source; imported where it is done, so that who hands it out loads no rule."""
    from ckaudit.fleet.audit_run import audit_run
    from ckaudit.run.memory import memory_limit

    if _max_bytes is None:  # whoever calls this says how much
        return audit_run(source)
    with memory_limit(_max_bytes):
        return audit_run(source)


class LocalEngine:
    """As many processes as were asked for.

    Attributes:
        workers: How many.
    """

    def __init__(self, workers: int | None = None, *, work: Work = work) -> None:
        """Take a number of processes, without one as many as this process may use cores, and what is done with a source."""
        self.workers = workers or len(os.sched_getaffinity(0))
        self._work = work

    def results(self, sources: Iterable[Source]) -> Iterator[list[FleetRun]]:
        """Yield the rows of each source as they come; a source that was with a killed process is tried once more, alone."""
        waiting = iter(sources)
        while True:
            lost: list[Source] = []
            yield from self._until_broken(waiting, lost)
            if not lost:
                return
            for source in lost:
                yield _alone(source, self._work)

    def _until_broken(self, waiting: Iterator[Source], lost: list[Source]) -> Iterator[list[FleetRun]]:
        """Yield rows until nothing is waiting, or a process was killed: then `lost` gets what was on its way."""
        with _pool(self.workers) as pool:
            running: Running = {}
            try:
                self._hand_out(pool, islice(waiting, self.workers * QUEUED), running)
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        rows = future.result()
                        del running[future]
                        self._hand_out(pool, islice(waiting, 1), running)
                        yield rows
            except BrokenExecutor:
                lost += running.values()

    def _hand_out(self, pool: ProcessPoolExecutor, sources: Iterable[Source], running: Running) -> None:
        """Give sources to the pool; one that it does not take, because it broke, is among the running ones too."""
        for source in sources:
            try:
                running[pool.submit(self._work, source)] = source
            except BrokenExecutor as error:
                future: Future[list[FleetRun]] = Future()
                future.set_exception(error)
                running[future] = source


def _alone(source: Source, work: Work) -> list[FleetRun]:
    """Return the rows of a source that nothing else is audited beside."""
    from ckaudit.fleet.audit_run import failed

    with _pool(1) as pool:
        try:
            return pool.submit(work, source).result()
        except BrokenExecutor:
            return [failed(source, KILLED)]


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes of one thread each that end with this one, however that ends."""
    from ckaudit.run.memory import free_memory

    context = get_context("forkserver")
    context.set_forkserver_preload(["ckaudit.fleet.engines.preload"])
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin, initargs=(free_memory() // workers,))
    try:
        yield pool
    except BaseException:  # whoever asked has gone away: nobody waits for what is half done
        for process in list((getattr(pool, "_processes", None) or {}).values()):
            process.kill()
        raise
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(max_bytes: int) -> None:
    """Leave Ctrl-C to the parent, and end with it: a pool's own processes outlive a parent that is killed."""
    from ckaudit.fleet.engines.preload import forget_garbage

    global _max_bytes  # noqa: PLW0603  a process begins once
    _max_bytes = max_bytes
    forget_garbage()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := parent_process()) is not None:
        parent.join()
        os._exit(1)
