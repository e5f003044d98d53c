"""A change with peers that look on at its training."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from benchmarks.peers.in_loop import Crowd, InLoopPeer, Spoken
from ckaudit.lab.change import Change

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.training import Training


class Told(Struct, frozen=True, kw_only=True):
    """What peers said of a training: findings and failures by the peer's name."""

    found: dict[str, list[Spoken]]
    errors: dict[str, str]


class WatchedChange:
    """A change, to which the training's moments go on; some of them are told to peers, in the first rank alone.

    A model that was built anew, after a stop, is met by peers that are attached anew, as in a new process. The loss that
    they are told is that of the training itself, before any logger: a `loss.item()` in the loop gives no other.
    """

    def __init__(self, change: Change, peers: Sequence[InLoopPeer], folder: Path) -> None:
        self._change, self._peers, self._folder = change, peers, folder
        self._crowd: Crowd | None = None
        self._model: object = None
        self._loss = 0.0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._change, name)

    def begin(self, training: "Training") -> None:
        """Attach the peers to a model that they do not know."""
        if training.rank == 0 and training.model is not self._model:
            self._model = training.model
            self._crowd = self._crowd or Crowd(self._peers, self._folder)
            self._crowd.attach(training.model, training.optimizer)
        self._loss = 0.0
        self._change.begin(training)

    def backward(self, training: "Training", loss: "Tensor") -> None:
        """Add a part of the batch to the loss of the step."""
        scale = training.scaler.get_scale() if training.scaler is not None else 1.0
        self._loss += float(loss.detach()) / scale
        self._change.backward(training, loss)

    def gradients(self, training: "Training") -> None:
        """Tell the peers once the change has had its way with the gradients."""
        self._change.gradients(training)
        if self._crowd:
            self._crowd.after_backward(self._loss)

    def updated(self, training: "Training") -> None:
        """Tell the peers once the change has had its way with the weights."""
        self._change.updated(training)
        if self._crowd:
            self._crowd.after_update(self._loss)

    def shown_loss(self, training: "Training", loss: "Tensor") -> "Tensor | float":
        """Let the peers speak when the last step is done."""
        if self._crowd and training.step == training.plan.last:
            self._crowd.finish()
            told = Told(found=self._crowd.found, errors=self._crowd.errors)
            (self._folder / "told.json").write_bytes(msgspec.json.encode(told))
        return self._change.shown_loss(training, loss)


def told(folder: Path) -> Told:
    """Return what was said at a training whose peers had this folder."""
    return msgspec.json.decode((folder / "told.json").read_bytes(), type=Told)
