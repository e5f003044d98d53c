"""The trainings of a drill: one command run repeatedly, each time in a process of its own that ends by itself."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Literal

from msgspec import Struct

from ckaudit.contract.io.files import SCALARS_NAME
from ckaudit.errors import CkauditError, UsageError
from ckaudit.recorder.drill.settings import DRILL_ENVIRONMENT_VARIABLE, DrillSettings, DrillStatus, read_status

QUIET: Mapping[str, str] = {"WANDB_MODE": "disabled", "COMET_MODE": "disabled"}
"""Variables that keep remote trackers from recording a drill as a run; values that the user has set stay."""

End = Literal["steps", "script", "crash"]


class DrillPlan(Struct, frozen=True, kw_only=True):
    """The plan of a drill.

    Attributes:
        command: The training command.
        faults: Names of faults, in order.
        steps: Steps of each training.
        onset: First step of faults that come in the middle.
        strength: Strength of the faults, from 0 (the weakest) to 1.
        seed: Seed of the faults' random numbers.
        jobs: Number of trainings in parallel.
        wait: Seconds within which a program must start a recorder.
    """

    command: tuple[str, ...]
    faults: tuple[str, ...]
    steps: int
    onset: int
    strength: float = 0.5
    seed: int = 0
    jobs: int = 1
    wait: float = 600.0

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the trainings: two healthy ones and one of each fault."""
        return (*HEALTHY, *self.faults)


HEALTHY = ("healthy-1", "healthy-2")


class Trained(Struct, frozen=True, kw_only=True):
    """The result of one training.

    Attributes:
        name: Name of the training: `healthy-1`, or its fault.
        folder: Its run folder.
        note: The status that the recorder wrote.
        end: Whether the drill ended it after its steps, the script ended earlier, or it crashed.
        code: Exit code of the process; negative: the number of a signal.
        stderr: The last lines that it wrote to standard error.
    """

    name: str
    folder: Path
    note: DrillStatus
    end: End
    code: int
    stderr: str = ""


def train_all(plan: DrillPlan, root: Path, *, on_step: Callable[[int, int], object] | None = None) -> list[Trained]:
    """Run all trainings of a plan; the first healthy one runs alone, because if it fails all would.

    Args:
        plan: What is drilled.
        root: An empty folder for run folders, status files and the output of the trainings.
        on_step: Called with the number of steps taken and of all steps, about ten times a second.

    Raises:
        UsageError: If the command cannot be started, starts no recorder, or its healthy training ends before the onset.
        CkauditError: If the healthy training crashes.
    """
    steps = dict.fromkeys(plan.names, 0)

    def report_progress(name: str, done: int) -> None:
        steps[name] = done
        if on_step:
            on_step(sum(steps.values()), plan.steps * len(steps))

    first = _all_of(plan, plan.names[:1], root, report_progress)
    _check_healthy(plan, first[0])
    return first + _all_of(plan, plan.names[1:], root, report_progress)


def _check_healthy(plan: DrillPlan, trained: Trained) -> None:
    if trained.end == "crash":
        raise CkauditError(
            f"the healthy training crashed after {trained.note.done} steps, "
            f"with {_in_words(trained.code)}{quoted(trained.stderr)}",
            hint=f"it must run as it is: {shown_command(plan.command)}",
        )
    if trained.note.why_not:
        raise CkauditError(f"the healthy training could not be recorded: {trained.note.why_not}")
    min_steps = plan.onset + 1
    if trained.note.done < min_steps:
        raise UsageError(
            f"the training ended by itself after {trained.note.done} steps, before the onset of the faults at step {plan.onset}",
            hint=f"let it train longer, or choose an earlier --onset (below {max(trained.note.done, 2)})",
        )


def _all_of(plan: DrillPlan, names: Sequence[str], root: Path, report_progress: Callable[[str, int], None]) -> list[Trained]:
    waiting, running, done = list(names), list[_Process](), dict[str, Trained]()
    before = signal.signal(signal.SIGTERM, _leave) if threading.current_thread() is threading.main_thread() else None
    try:
        while waiting or running:
            while waiting and len(running) < plan.jobs:
                running.append(_Process(plan, waiting.pop(0), root))
            sleep(POLL)
            for training in list(running):
                ended = training.look()
                report_progress(training.name, training.steps)
                if ended:
                    running.remove(training)
                    done[training.name] = ended
    finally:
        for training in running:
            training.kill()
        if before is not None:
            signal.signal(signal.SIGTERM, before)
    return [done[name] for name in names]


def _leave(number: int, _frame: object) -> None:
    """Exit when this process is told to end, after terminating the trainings."""
    sys.exit(128 + number)


POLL = 0.1  # seconds between two polls
LAST_LINES, LAST_BYTES = 12, 4_000  # of a training's output


class _Process:
    """One running training."""

    def __init__(self, plan: DrillPlan, name: str, root: Path) -> None:
        self.name, self.folder, self.steps = name, root / name, 0
        self._plan, self._since, self._ended_at = plan, monotonic(), 0.0
        self._stderr_file, self._read = root / f"{name}.stderr.txt", 0
        settings = DrillSettings(
            folder=str(self.folder.absolute()),
            steps=plan.steps,
            fault="" if name in HEALTHY else name,
            onset=plan.onset,
            strength=plan.strength,
            seed=plan.seed,
        )
        with (root / f"{name}.stdout.txt").open("wb") as out, self._stderr_file.open("wb") as err:
            self._process = _started(plan.command, QUIET | os.environ | settings.as_environment(), out, err)

    def look(self, *, patience: float = 30.0) -> Trained | None:
        """Count its steps, and return the result once it has ended.

        Args:
            patience: Seconds that a program may take to exit after its training; then it is killed.

        Raises:
            UsageError: If it started no recorder.
        """
        code = self._process.poll()
        note = read_status(self.folder)
        self.steps = max(self._counted(), note.done if note else 0)
        if code is None:
            if note is None and monotonic() - self._since > self._plan.wait:
                self.kill()
                raise _no_recorder(self._plan, f"no recorder was made within {self._plan.wait:g} s", self._last_lines())
            self._ended_at = self._ended_at or (monotonic() if note and (note.is_over or note.why_not) else 0.0)
            if self._ended_at and monotonic() - self._ended_at > patience:
                self.kill()
            return None
        self.kill()  # children that the program left behind
        output = self._last_lines()
        if note is None and code:
            what = f"{_in_words(code)} before it made a recorder"
            raise CkauditError(
                f"the command ended with {what}{quoted(output)}",
                hint=f"it must run as it is: {shown_command(self._plan.command)}",
            )
        if note is None:
            raise _no_recorder(self._plan, "the command ended without making a recorder", output)
        is_by_drill = note.is_over or bool(note.why_not)
        note.done = max(note.done, self.steps)
        end: End = "steps" if is_by_drill else "crash" if code else "script"
        return Trained(name=self.name, folder=self.folder, note=note, end=end, code=code, stderr=output)

    def kill(self) -> None:
        """Kill the program and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _counted(self) -> int:
        """Return how many steps have a log line so far; values logged later have a second line, without the count."""
        with suppress(FileNotFoundError), (self.folder / SCALARS_NAME).open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
            whole = text.rfind(b"\n") + 1
            self._read += whole
            return self.steps + text[:whole].count(b'"steps_seen"')
        return self.steps

    def _last_lines(self) -> str:
        with self._stderr_file.open("rb") as stream:
            stream.seek(max(0, self._stderr_file.stat().st_size - LAST_BYTES))
            text = stream.read().decode("utf-8", "replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-LAST_LINES:])


def _started(
    command: Sequence[str], surroundings: Mapping[str, str], out: IO[bytes], err: IO[bytes]
) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(  # noqa: S603  the command is the user's own
            command, env=surroundings, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(
            f"cannot start {command[0]}: {reason}",
            hint="write the command as you would type it: ckaudit drill -- python train.py",
        ) from None


def _no_recorder(plan: DrillPlan, what: str, output: str) -> UsageError:
    return UsageError(
        f"{what}, so that nothing of it could be seen{quoted(output)}",
        hint="ckaudit drill needs a training that records itself with ckaudit.Recorder or the RecorderCallback of a trainer, in "
        f"the Python that runs {shown_command(plan.command)}, and hands {DRILL_ENVIRONMENT_VARIABLE} of the environment on "
        "to where it trains",
    )


def quoted(output: str) -> str:
    """Return the last output of a program as the end of a sentence; empty if there is none."""
    return f"; it said last: {' | '.join(output.splitlines()[-3:])}" if output else ""


def shown_command(command: Sequence[str]) -> str:
    """Return a command as typed in a shell."""
    from shlex import join

    return join(command)


def _in_words(code: int) -> str:
    if code < 0:
        with suppress(ValueError):
            return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"
