"""A recorder session for a drill: it injects the fault, records the training, and ends it."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import torch
from msgspec.structs import replace

from ckaudit.contract.io.files import write_atomic
from ckaudit.recorder.distributed.ranks import WorkerSession
from ckaudit.recorder.drill.damage import DrillStrength, middle_part
from ckaudit.recorder.drill.faults import FAULT_ACTIONS, DrilledTraining, FaultNotPossibleError
from ckaudit.recorder.drill.settings import KINDS, DrillSettings, DrillStatus
from ckaudit.recorder.hooks.hook import after_backward
from ckaudit.recorder.loop.session import RunSession, Start, begin, rank_and_world_size
from ckaudit.recorder.model.optimizers import as_sequence
from ckaudit.recorder.setup import Setup


class Drill:
    """Injects the fault of a drill into one training, writes its status, and decides when the training ends.

    Args:
        settings: Settings of the drill.
        setup: Arguments of the recorder.
        writes: Whether this process writes the status file; only the first rank does.
    """

    def __init__(self, settings: DrillSettings, setup: Setup, *, writes: bool) -> None:
        self._settings, self._writes, self._guard = settings, writes, setup.guard
        self._kind = KINDS.get(settings.fault)
        onset = settings.onset if self._kind and self._kind.sudden else 1
        self._target = DrilledTraining(
            setup.model, as_sequence(setup.optimizer), DrillStrength(onset, settings.strength), settings.seed
        )
        self._note = DrillStatus(first=setup.start_step + 1)
        self._acted_after, self._has_closure, self._is_held, self._has_hooks = 0, False, False, False
        for optimizer in as_sequence(setup.optimizer):
            optimizer.register_step_pre_hook(self._before_update)

    def begin(self) -> None:
        """Do what comes before the first step, and write the status, which shows that the program has a recorder."""
        if self._kind:
            self._do(lambda: FAULT_ACTIONS[self._settings.fault](self._target))
            if self._kind.place and not self._note.why_not:
                self._note.place = middle_part(self._target.model)
        self._write()

    def after_backward(self) -> None:
        """Do what comes after the backward passes of a step, once per step."""
        if self._acted_after < self._target.step and not self._is_held:
            self._acted_after = self._target.step
            for act in self._target.after_backward:
                self._do(act)

    def seek_moment(self) -> None:
        """Let autograd report the end of a backward pass, if the program read no gradients by the end of a step."""
        if self._acted_after < self._target.step and not self._has_hooks:
            self._has_hooks = True
            trainable = (weight for weight in self._target.model.parameters() if weight.requires_grad)
            for weight in islice(trainable, 1):
                weight.register_post_accumulate_grad_hook(lambda _: after_backward(self.after_backward))  # type: ignore[no-untyped-call]

    def hold(self, look: Callable[[], None]) -> None:
        """Let the recorder read the gradients, unless the update has a closure that computes them."""
        self._is_held = self._has_closure
        try:
            look()
        finally:
            self._is_held = False

    def step_is_finished(self) -> bool:
        """Count a step, and tell whether the training is to end."""
        self._note.done = self._target.step
        self._note.is_over = self._note.done >= self._settings.steps
        self._target.step += 1
        for act in self._target.before_step:
            self._do(act)
        return self.is_refused or self._note.is_over

    def take_resume(self) -> bool:
        """Tell, once, whether the next step begins a new session."""
        is_resumed, self._target.is_resumed = self._target.is_resumed, False
        return is_resumed

    @property
    def is_refused(self) -> bool:
        """Whether the fault cannot be injected into this training."""
        return bool(self._note.why_not)

    @property
    def done(self) -> int:
        """Steps taken so far."""
        return self._note.done

    def close(self) -> None:
        """Write the final status of the training."""
        if self._kind and self._target.acted is None and not self.is_refused and self._note.is_over:
            self._note.why_not = self._target.missing
        self._write()

    def _do(self, act: Callable[[], object]) -> None:
        try:
            with torch.no_grad():
                act()
        except FaultNotPossibleError as refusal:
            self._note.why_not = str(refusal)
        except Exception as error:  # noqa: BLE001  a model may be built in any way
            self._note.why_not = f"doing it failed with {type(error).__name__}: {error}"

    def refuse(self, why: str) -> None:
        """Write why there is nothing to drill."""
        self._note.why_not = why
        self._write()

    def _before_update(self, _optimizer: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._has_closure = options.get("closure", next(iter(arguments), None)) is not None

    def _write(self) -> None:
        self._note.acted = self._target.acted
        if self._writes:
            with self._guard("writing the note of a drill"):
                self._settings.note.parent.mkdir(parents=True, exist_ok=True)
                write_atomic(self._settings.note, msgspec.json.encode(self._note))


class _Drilled:
    """The additions of a drill to both kinds of sessions."""

    def __init__(self, setup: Setup, drill: Drill, **parts: Any) -> None:
        self._drill, self._setup, self._is_closed = drill, setup, False
        super().__init__(setup, **parts)  # type: ignore[call-arg]

    def read_gradients(self, source: Any) -> None:
        self._drill.after_backward()
        super().read_gradients(source)  # type: ignore[misc]

    def read_clipped(self, max_norm: float, norm: float | None) -> None:
        self._drill.after_backward()
        super().read_clipped(max_norm, norm)  # type: ignore[misc]

    def read_for_clipping(self, max_norm: float) -> Any:
        self._drill.after_backward()
        return super().read_for_clipping(max_norm)  # type: ignore[misc]

    def _before_update(self, *given: Any) -> None:
        look = super()._before_update  # type: ignore[misc]
        self._drill.hold(lambda: look(*given))

    def finish_step(self, loss: Any, start: float, *, batch: Any, batch_id: Any = None, source: Any = None) -> None:
        """Finish the step; after the last one, end the program without an error, so that its exit handlers run."""
        if not self._is_closed:
            self._drill.seek_moment()
            super().finish_step(loss, start, batch=batch, batch_id=batch_id, source=source)  # type: ignore[misc]
        if self._is_closed or self._drill.step_is_finished():
            self.close()
            raise SystemExit(0)
        if self._drill.take_resume():
            super().close()  # type: ignore[misc]
            # The program holds this object, so it continues as the next session.
            setup = replace(self._setup, start_step=self._setup.start_step + self._drill.done)
            begin(setup, self._taken_up, self._taken_up)

    def _taken_up(self, setup: Setup, **parts: Any) -> Any:
        super().__init__(setup, **parts)  # type: ignore[call-arg]
        return self

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            super().close()  # type: ignore[misc]
            self._drill.close()


class DrilledRun(_Drilled, RunSession):
    """The recorder of a drill on the first rank."""


class DrilledWorker(_Drilled, WorkerSession):
    """The recorder of a drill on another rank."""


_BEGUN: list[Path] = []  # folders of the recorders started in this process


def drill_session(settings: DrillSettings, setup: Setup) -> Start:
    """Return the recorder session of this rank in a drill.

    The first recorder of a program is drilled. Later ones, of a second model or training, record into folders beside it, so that
    no folder of a real run is written to.

    Args:
        settings: Settings of the drill.
        setup: Arguments of the recorder, including the folder that the program names.
    """
    _BEGUN.append(setup.path)
    if len(_BEGUN) > 1:
        return begin(replace(setup, path=Path(f"{settings.folder}.{len(_BEGUN)}"), address=None), RunSession, WorkerSession)
    drill = Drill(settings, setup, writes=not rank_and_world_size()[0])
    drill.begin()
    if drill.is_refused:
        raise SystemExit(0)
    local_setup = replace(setup, path=Path(settings.folder), address=None)
    try:
        return begin(local_setup, partial(DrilledRun, drill=drill), partial(DrilledWorker, drill=drill))
    except Exception as error:  # noqa: BLE001  a real training would go on; this one has nothing to go on for
        drill.refuse(f"the recorder could not start: {type(error).__name__}: {error}")
        raise SystemExit(0) from None
