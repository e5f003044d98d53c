"""One trial: a training is recorded while things go wrong, then goes on without, and what both have left is looked at."""

import json
import os
import shutil
import traceback
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time
from typing import Any
from unittest import mock

import fsspec
import msgspec
import numpy as np

import ckaudit
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import CHECKPOINT_NAME, read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import Cadence, Manifest
from ckaudit.recorder import Writer
from ckaudit.recorder.files.background import Background
from ckaudit.recorder.files.run_folder import RunFolderWriter
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.model.weight_movement import Reference
from ckaudit.remote.spool import spool_of
from tests.faults.layer import Layer
from tests.faults.plans import Plan

ADDRESS = "memory://faults/run"
MORE = 3
"""Steps that follow once nothing goes wrong any more."""

TOLD = frozenset({"RUN003", "RUN015", "RUN016", "RUN025"})
"""What `ckaudit validate` may say: a gap between checkpoints, failures to write or to look, a session without an end."""

OF_CLOCKS = frozenset({"RUN008", "RUN012"})
"""And where a clock was wrong: time that goes back, a session that ends before it began."""

WEIGHTS = {f"blocks.{number}.weight": np.linspace(-1, 1, 16).reshape(4, 4) * (number + 1) for number in range(2)}


@dataclass
class Outcome:
    """What came of a trial.

    Attributes:
        wrong: What must not be, in words.
        injected: How often each fault came about.
        codes: What `ckaudit validate` said of the run that is left.
    """

    wrong: list[str] = field(default_factory=list)
    injected: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)


class Training:
    """What all trainings have in common: a run folder underneath."""

    folder: RunFolderWriter
    recorder: Any

    def settle(self, *, patience: float) -> None:
        """Wait until all is done, so long at most."""
        self.folder.wait_for_writes(patience=patience)

    def first(self) -> None:
        """Write what comes before the first step."""


class FolderTraining(Training):
    """A training whose numbers are there already: only its files are made."""

    def __init__(self, plan: Plan, place: str, *, start: int) -> None:
        self._guard, self._every = Guard(), plan.every
        self.folder, self.recorder = RunFolderWriter(Path(place), self._guard, suffix=plan.suffix, start_step=start), self
        facts = {"name": "faults", "commit": "0" * 40, "lock_hash": "sha256:00", "environment": {}}
        with self._guard("opening the folder", writes=True):
            self.folder.open(facts)
        if plan.seed % 4 == 0:  # it takes half of the time
            with self._guard("writing reference.npz", writes=True):
                self.folder.take_reference(WEIGHTS)
        self.folder.describe(source="faults")
        self.folder.wait_for_writes()

    def first(self) -> None:
        if not self.folder.is_resume:
            self._write(0)

    def step(self, step: int) -> None:
        with self._guard("writing scalars.jsonl", writes=True):
            self.folder.append(step, time(), {"train_loss_raw": 1.0, "learning_rate": 0.1})
        if step % self._every == 0:
            self._write(step)

    def close(self) -> None:
        with self._guard("closing", writes=True):
            self.folder.close()

    def _write(self, step: int) -> None:
        with self._guard("writing a checkpoint", writes=True):
            self.folder.write(_checkpoint(step, self.folder.session))


def _checkpoint(step: int, session: int) -> Checkpoint:
    return msgspec.structs.replace(
        _example(), step=step, session=session, time=round(time(), 3), triggers=["cadence"], scalars=msgspec.UNSET
    )


@cache
def _example() -> Checkpoint:
    """Return a checkpoint of a writer."""
    with TemporaryDirectory() as folder:
        with Writer(folder, vocabulary=9, suffix=".json") as writer:
            writer.step(1, loss=1.0)
            writer.checkpoint(1, weights=WEIGHTS, gradients=WEIGHTS)
        data = (Path(folder) / "analysis_checkpoint_step_00000001.json").read_bytes()
    return msgspec.json.decode(data, type=Checkpoint)


class NumPyTraining(Training):
    """A training that hands arrays to a `Writer`."""

    def __init__(self, plan: Plan, place: str, *, start: int) -> None:
        cadence = [Cadence(until=None, every=plan.every)]
        self.recorder = Writer(place, start_step=start, cadence=cadence, suffix=plan.suffix, name="faults", vocabulary=9)
        self.folder = self.recorder._folder
        self._start = start

    def first(self) -> None:
        if self._start == 0:
            self.recorder.checkpoint(0, weights=WEIGHTS)

    def step(self, step: int) -> None:
        weights = {name: array * (1 + 0.01 * step) for name, array in WEIGHTS.items()}
        due = self.recorder.is_due(step)
        self.recorder.step(step, loss=1 / step, learning_rate=0.1)
        if due:
            self.recorder.checkpoint(step, weights=weights, gradients=WEIGHTS)


class TorchTraining(Training):
    """A training with a `Recorder` on its model."""

    def __init__(self, plan: Plan, place: str, *, start: int) -> None:
        import torch

        from ckaudit.recorder import Recorder

        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        cadence = [Cadence(until=None, every=plan.every)]
        self.batch = torch.linspace(-1, 1, 8).reshape(2, 4)
        self.recorder = Recorder(
            self.model, place, optimizer=self.optimizer, start_step=start, cadence=cadence, suffix=plan.suffix, name="faults"
        )
        self.folder = self.recorder._session._folder

    def step(self, _step: int) -> None:
        self.optimizer.zero_grad()
        loss = self.model(self.batch).square().mean()
        loss.backward()
        self.recorder.after_backward()
        self.optimizer.step()
        self.recorder.step(loss, batch=(self.batch, self.batch))


class InlineTraining(FolderTraining):
    """The same without a thread."""

    def __init__(self, plan: Plan, place: str, *, start: int) -> None:
        with mock.patch.object(Background, "_start", _at_once):
            super().__init__(plan, place, start=start)
        self.folder._background._start = lambda: None
        self.settle()

    def settle(self, **_: float) -> None:
        self.folder._background._work_off()


TRAININGS = {
    "inline": InlineTraining,
    "folder": FolderTraining,
    "writer": NumPyTraining,
    "address": NumPyTraining,
    "recorder": TorchTraining,
}


def trial(plan: Plan, folder: Path, *, asked: Collection[str] = ()) -> Outcome:
    """Run one trial in a folder that is made for it and deleted after it.

    Args:
        plan: What happens.
        folder: The folder.
        asked: Which of "validate" and "triage" are asked too.
    """
    folder.mkdir(parents=True)
    outcome = Outcome()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        place, run = _place(plan, folder, stack)
        try:
            _run(plan, place, run, outcome)
            outcome.wrong += look(plan, run)
            if plan.kind == "address":
                outcome.wrong += _look_at_address(run)
            if "validate" in asked:
                outcome.wrong += _validated(run, outcome)
            if "triage" in asked:
                outcome.wrong += _judged(run)
        except Exception as error:  # noqa: BLE001  whatever it is, the training would have ended by it
            outcome.wrong.append(f"raised {type(error).__name__}: {error}\n{traceback.format_exc(limit=-4)}")
    return outcome


def _place(plan: Plan, folder: Path, stack: ExitStack) -> tuple[str, Path]:
    """Return where the training records to, and the run folder of it on this machine."""
    stack.enter_context(mock.patch("ckaudit.recorder.files.run_folder.sleep", _at_once))
    if plan.kind != "address":
        return str(folder / "run"), folder / "run"
    stack.enter_context(mock.patch.dict(os.environ, CKAUDIT_SPOOL=str(folder / "spool")))
    stack.enter_context(mock.patch("ckaudit.recorder.files.uploader.pauses", side_effect=lambda *_, **__: repeat(0.001)))
    stack.enter_context(mock.patch("ckaudit.recorder.files.uploader.PAUSE", 0.005))
    fsspec.filesystem("memory").store.clear()
    return ADDRESS, spool_of(ADDRESS).run


def _at_once(*_: object) -> None:
    """Stand for what takes time."""


def _training(plan: Plan, place: str, start: int) -> Any:
    return TRAININGS[plan.kind](plan, place, start=start)


def _run(plan: Plan, place: str, run: Path, outcome: Outcome) -> None:
    if plan.earlier:
        _steps(_training(plan, place, 0), range(1, plan.earlier + 1))
    before = _names(run)
    with Layer(run.parent, plan.faults) as layer:
        training = _training(plan, place, plan.earlier)
        with layer.step(0):
            training.first()
        patience = 0.02 if plan.hangs else 2.0
        edges = {fault.first for fault in plan.faults} | {fault.last + 1 for fault in plan.faults}
        for step in range(1, plan.steps + 1):
            if step in edges or plan.kind == "inline":
                training.settle(patience=patience)
            with layer.step(step):
                training.step(plan.earlier + step)
        training.settle(patience=patience)
        layer.release()
        training.recorder.close()
    outcome.injected = layer.injected
    if layer.blocked:
        outcome.wrong.append(f"a step waited for {dict(layer.blocked)}")
    if lost := {name for name in before - _names(run) if not name.startswith("analysis_")}:
        outcome.wrong.append(f"files of the earlier start are gone: {sorted(lost)}")
    end = plan.earlier + plan.steps
    _steps(_training(plan, place, end), range(end + 1, end + MORE + 1))


def _steps(training: Any, steps: range) -> None:
    training.first()
    for step in steps:
        training.step(step)
    training.recorder.close()


def _names(run: Path) -> set[str]:
    return {path.name for path in run.iterdir()} if run.exists() else set()


def look(plan: Plan, run: Path) -> Iterator[str]:
    """Yield what must not be of a run whose faults are over, and which has gone on since."""
    yield from _look_at_files(run)
    manifest = msgspec.json.decode((run / "run.json").read_bytes(), type=Manifest)
    sessions = manifest.sessions or []
    yield from _look_at_lines(plan, run, len(sessions))
    yield from _look_at_sessions(plan, run, sessions)


def _validated(run: Path, outcome: Outcome) -> Iterator[str]:
    for finding in ckaudit.validate(run).findings:
        outcome.codes[finding.code] += 1
        if finding.code not in TOLD | OF_CLOCKS:
            yield f"validate says {finding.code} of {finding.where}: {finding.message}"


def _look_at_address(run: Path) -> Iterator[str]:
    """Yield what is not at the address as it is here."""
    storage, start = fsspec.filesystem("memory"), ADDRESS.removeprefix("memory:/") + "/"
    there = {path.removeprefix(start): storage.cat_file(path) for path in storage.store if path.startswith(start)}
    here = {path.name: path.read_bytes() for path in run.iterdir() if not path.name.startswith(".")}
    yield from (
        f"{name} is not the same at the address" for name in here.keys() | there.keys() if here.get(name) != there.get(name)
    )


def _look_at_files(run: Path) -> Iterator[str]:
    for path in sorted(run.iterdir()):
        if path.name.startswith("."):
            yield f"{path.name} was left"
        elif CHECKPOINT_NAME.match(path.name):
            for finding in check_checkpoint(read_bytes(path, path.name), path.name).findings:
                yield f"{path.name}: {finding.message}"
        elif path.name == "reference.npz":
            Reference.load(path)


def _look_at_lines(plan: Plan, run: Path, sessions: int) -> Iterator[str]:
    end = plan.earlier + plan.steps
    seen = Counter[int]()
    for line in (run / "scalars.jsonl").read_bytes().splitlines():
        try:
            values = json.loads(line)
        except ValueError:
            yield f"a torn line: {line[:80]!r}"
            continue
        seen[values["step"]] += "train_loss_raw" in values
        if not 0 <= values["session"] < sessions:
            yield f"a line of session {values['session']}, of {sessions}"
    wanted = range(1, end + MORE + 1)
    if plan.lasts:
        wanted = [*range(1, plan.earlier + 1), *range(end + 1, end + MORE + 1)]
    if missing := [step for step in wanted if not seen[step]]:
        yield f"no line of steps {missing}"
    if twice := [step for step, times in seen.items() if times > 1]:
        yield f"two lines of steps {twice}"


def _look_at_sessions(plan: Plan, run: Path, sessions: list[Any]) -> Iterator[str]:
    wanted = 2 + bool(plan.earlier)
    if len(sessions) != wanted and not (plan.lasts and len(sessions) == wanted - 1):
        yield f"{len(sessions)} sessions in place of {wanted}"
        return
    if sessions[-1].end is msgspec.UNSET or sessions[-1].write_errors:
        yield f"what followed is not whole: {sessions[-1]}"
    faulty = sessions[-2] if len(sessions) == wanted else None
    missing = [step for step in _due(plan) if not [*run.glob(f"analysis_checkpoint_step_{step:08d}.*")]]
    # What waits behind a call that hangs is written later.
    if unexcused := [step for step in missing if plan.is_sound(step - plan.earlier) and not plan.hangs]:
        yield f"no checkpoint of steps {unexcused}, when nothing went wrong"
    if faulty is None:
        return
    if faulty.end is msgspec.UNSET:
        yield from [] if plan.lasts else ["the session has no end"]
    elif not faulty.write_errors and (missing or (missing := sorted({*_steps_of(plan)} - _steps_in(run)))):
        yield f"steps {missing} lack a checkpoint or a line, and nothing is said of it"


def _steps_of(plan: Plan) -> range:
    return range(plan.earlier + 1, plan.earlier + plan.steps + 1)


def _steps_in(run: Path) -> set[int]:
    return {msgspec.json.decode(line)["step"] for line in (run / "scalars.jsonl").read_bytes().splitlines()}


def _due(plan: Plan) -> list[int]:
    start, end = plan.earlier, plan.earlier + plan.steps
    return [step for step in range(start + 1, end + 1) if step % plan.every == 0] + [0]


def _judged(run: Path) -> Iterator[str]:
    report = ckaudit.triage(run).to_dict()
    for check in report.get("checks", []):
        if check["outcome"] == "error":
            yield f"triage: {check}"
