"""Faults under the calls that a recorder makes, at planned moments: of files in one folder, of threads, and of clocks."""

import builtins
import errno
import io
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from unittest import mock

LASTS = 10**9
"""The last moment of a fault that does not end by itself."""

CALLS = ("open", "read", "write", "fsync", "truncate", "replace", "mkdir", "list", "unlink", "stat")
"""Calls of files that may fail; "thread" and "clock" are faults of their own."""

CLOCKS = ("time", "time_ns", "perf_counter", "monotonic")


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong.

    Attributes:
        call: What goes wrong: one of `CALLS`, "thread" or "clock".
        how: The name of an error number; "short" for a write that takes a part; "slow"; "hang", which lasts until the steps
            are over; of clocks "back", "ahead" or "still".
        first: The moment at which it begins: 0 is the start, then steps.
        last: Its last moment; `LASTS`: it does not end while the recorder lives.
        times: How often at most; 0: every time.
    """

    call: str
    how: str
    first: int
    last: int
    times: int = 0


class Layer:
    """Stands under the recorder while it is entered.

    Attributes:
        moment: Where the training is: set by who trains.
        blocked: What the training's thread called inside a step that can wait for a disk or for another thread.
        injected: How often each fault came about.

    Args:
        folder: Files below it may fail, others never.
        faults: What goes wrong.
        delay: Seconds that a slow call takes.
    """

    def __init__(self, folder: Path, faults: tuple[Fault, ...], *, delay: float = 0.001) -> None:
        self.moment, self.blocked, self.injected = 0, Counter[str](), Counter[str]()
        self._folder, self._faults, self._delay = os.fspath(folder), faults, delay
        self._left = {number: fault.times for number, fault in enumerate(faults) if fault.times}
        self._files: dict[int, str] = {}
        self._released = threading.Event()
        self._training, self._in_step, self._in_start = threading.get_ident(), False, False
        self._real = {name: getattr(time, name) for name in CLOCKS}

    @contextmanager
    def step(self, moment: int) -> Iterator[None]:
        """Hold what the training's thread calls in here to be a step."""
        self.moment, self._in_step = moment, True
        try:
            yield
        finally:
            self._in_step = False

    def release(self) -> None:
        """Let calls go on that hang."""
        self._released.set()

    def __enter__(self) -> Self:
        self._patches = [*self._file_patches(), *self._thread_patches(), *self._clock_patches()]
        for patch in self._patches:
            patch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        for patch in reversed(self._patches):
            patch.stop()

    def meet(self, call: str, place: object) -> str:
        """Do to a call what is planned for it: raise, wait, or return "short"; empty: nothing."""
        if isinstance(place, int):
            place = self._files.get(place)
        if place is None or not _text(place).startswith(self._folder):
            return ""
        self._note(call)
        fault = self._due(call)
        if fault is None:
            return ""
        self.injected[f"{call} {fault.how}"] += 1
        if fault.how == "slow":
            time.sleep(self._delay)
        elif fault.how == "hang":
            self._released.wait(60)
        elif fault.how != "short":
            number = getattr(errno, fault.how)
            raise OSError(number, os.strerror(number))
        return "short" if fault.how == "short" else ""

    def _note(self, call: str) -> None:
        if self._in_step and threading.get_ident() == self._training and not self._in_start:
            self.blocked[call] += 1

    def _due(self, call: str) -> Fault | None:
        for number, fault in enumerate(self._faults):
            if fault.call == call and fault.first <= self.moment <= fault.last and self._left.get(number, 1):
                if number in self._left:
                    self._left[number] -= 1
                return fault
        return None

    # Files.
    def _file_patches(self) -> Iterator[Any]:
        opened = self._opened(io.open)
        yield mock.patch.object(io, "open", opened)
        yield mock.patch.object(builtins, "open", opened)
        yield mock.patch.object(os, "open", self._descriptor(os.open))
        yield mock.patch.object(os, "close", self._closed(os.close))
        yield mock.patch.object(os, "write", self._written(os.write))
        calls = {
            "fsync": "fsync",
            "ftruncate": "truncate",
            "truncate": "truncate",
            "replace": "replace",
            "rename": "replace",
            "mkdir": "mkdir",
        }
        calls |= {"listdir": "list", "scandir": "list", "unlink": "unlink", "stat": "stat", "lstat": "stat"}
        for name, call in calls.items():
            yield mock.patch.object(os, name, self._met(call, getattr(os, name)))

    def _met(self, call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def met(place: Any, *given: Any, **named: Any) -> Any:
            self.meet(call, place)
            return real(place, *given, **named)

        return met

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def opened(place: Any, mode: str = "r", *given: Any, **named: Any) -> Any:
            if isinstance(place, int) or not _text(place).startswith(self._folder):
                return real(place, mode, *given, **named)
            self.meet("open", place)
            raw = _Raw(self, _text(place), mode.replace("b", "").replace("t", ""))
            if "+" in mode:
                return io.BufferedRandom(raw)
            stream = io.BufferedReader(raw) if "r" in mode else io.BufferedWriter(raw)
            return stream if "b" in mode else io.TextIOWrapper(stream, named.get("encoding") or "utf-8")

        return opened

    def _descriptor(self, real: Callable[..., int]) -> Callable[..., int]:
        def opened(place: Any, *given: Any, **named: Any) -> int:
            self.meet("open", place)
            descriptor = real(place, *given, **named)
            self.take(descriptor, place)
            return descriptor

        return opened

    def take(self, descriptor: int, place: Any) -> None:
        """Remember which file an open descriptor belongs to."""
        if _text(place).startswith(self._folder):
            self._files[descriptor] = _text(place)

    def forget(self, descriptor: int) -> None:
        """Forget it: its number may come again."""
        self._files.pop(descriptor, None)

    def _closed(self, real: Callable[[int], None]) -> Callable[[int], None]:
        def closed(descriptor: int) -> None:
            self.forget(descriptor)
            real(descriptor)

        return closed

    def _written(self, real: Callable[[int, Any], int]) -> Callable[[int, Any], int]:
        def written(descriptor: int, data: Any) -> int:
            is_short = self.meet("write", descriptor) == "short"
            return real(descriptor, data[: len(data) // 2] if is_short else data)

        return written

    # Threads.
    def _thread_patches(self) -> Iterator[Any]:
        start, wait = threading.Thread.start, threading.Condition.wait

        def started(thread: threading.Thread) -> None:
            if self._due("thread") is not None:
                self.injected["thread"] += 1
                raise RuntimeError("can't start new thread")
            self._in_start = threading.get_ident() == self._training
            try:
                start(thread)
            finally:
                self._in_start = False

        def waited(condition: threading.Condition, timeout: float | None = None) -> bool:
            self._note("wait")
            return wait(condition, timeout)

        yield mock.patch.object(threading.Thread, "start", started)
        yield mock.patch.object(threading.Condition, "wait", waited)

    # Clocks: every module has its own name for them.
    def _clock_patches(self) -> Iterator[Any]:
        if not any(fault.call == "clock" for fault in self._faults):
            return
        clocks = {name: self._clock(name) for name in CLOCKS}
        for name, module in [*sys.modules.items()]:
            if name.startswith(("ckaudit.recorder", "ckaudit.remote")):
                for clock, real in self._real.items():
                    if getattr(module, clock, None) is real:
                        yield mock.patch.object(module, clock, clocks[clock])

    def _clock(self, name: str) -> Callable[[], float]:
        latest = [self._real[name]()]

        def clock() -> float:
            fault = self._due("clock")
            now = self._real[name]()
            if fault is None:
                latest[0] = now
                return now
            self.injected[f"clock {fault.how}"] += 1
            hour = 3600 * (10**9 if name == "time_ns" else 1)
            # Only the calendar goes back: the others may stand still, or leap ahead while the machine sleeps.
            is_calendar = name in ("time", "time_ns")
            return latest[0] if fault.how == "still" else now + (hour if fault.how == "ahead" else -hour if is_calendar else 0)

        return clock


class _Raw(io.FileIO):
    """A file whose reads and writes may fail."""

    def __init__(self, layer: Layer, place: str, mode: str) -> None:
        super().__init__(place, mode)
        self._layer, self._place = layer, place
        layer.take(self.fileno(), place)

    def write(self, data: Any) -> int:
        is_short = self._layer.meet("write", self._place) == "short"
        return super().write(memoryview(data)[: max(1, len(data) // 2)] if is_short else data)

    def readinto(self, buffer: Any) -> int:
        self._layer.meet("read", self._place)
        return super().readinto(buffer)

    def readall(self) -> bytes:
        self._layer.meet("read", self._place)
        return super().readall()

    def close(self) -> None:
        if not self.closed:
            self._layer.forget(self.fileno())
        super().close()


def _text(place: Any) -> str:
    return os.fsdecode(place) if isinstance(place, str | bytes | os.PathLike) else ""
