"""Peers that are part of a training: how each is attached, what it is told, and what it says in the end."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from benchmarks.peers.peer import Level, PeerVerdict, Tool, meaning

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

Spoken = tuple[str, str]  # how grave, in the peer's own word, and the message


class Watcher(Protocol):
    """One peer at one model; making it attaches it, with its defaults."""

    def __init__(self, model: "nn.Module", optimizer: "Optimizer", folder: Path) -> None:
        """Attach it; what it writes goes into `folder`, which is its own."""

    def after_backward(self, loss: float) -> None:
        """Tell it that the gradients are there."""

    def after_update(self, loss: float) -> None:
        """Tell it that the optimizer has taken its step."""

    def finish(self) -> list[Spoken]:
        """Detach it and return all that it found, in the order of its own report."""


class InLoopPeer(Tool, frozen=True, kw_only=True):
    """One that is attached to a training.

    Attributes:
        package: What is installed; `name` says also how it is run.
        watch: How it is attached.
        levels: What its words for how grave a finding is come to.
    """

    package: str
    watch: type[Watcher]
    levels: dict[str, Level]


def known() -> tuple[InLoopPeer, ...]:
    """Return every peer that can be attached."""
    from benchmarks.peers.torch_audit import TORCH_AUDIT, TORCH_AUDIT_EVERY_STEP
    from benchmarks.peers.torchmortem import TORCHMORTEM
    from benchmarks.peers.trainscope import TRAINSCOPE

    return TORCHMORTEM, TRAINSCOPE, TORCH_AUDIT, TORCH_AUDIT_EVERY_STEP


def verdict_of(peer: InLoopPeer, spokens: Sequence[Spoken], *, version: str, error: str = "") -> PeerVerdict:
    """Return what findings come to: the gravest of their levels, and the messages of those that are alarms.

    Findings without an alarm are left out, as in what peers say of logs.
    """
    if error:
        return PeerVerdict(level="error", messages=(error,), version=version)
    levels = [peer.levels[severity] for severity, _ in spokens]
    messages = tuple(message for level, (_, message) in zip(levels, spokens, strict=True) if level != "clean")
    worst: Level = next((level for level in ("fail", "warn") if level in levels), "clean")
    return PeerVerdict(level=worst, causes=meaning(messages, peer.means), messages=messages, version=version)


class Crowd:
    """Peers at one training: each is told of the moments, and one that fails is told no more.

    Attributes:
        found: What each has found, of all models that it was attached to.
        errors: Why a peer gave no answer.
    """

    def __init__(self, peers: Sequence[InLoopPeer], folder: Path) -> None:
        self._peers, self._folder = peers, folder
        self._watching: dict[str, Watcher] = {}
        self._models = 0
        self.found: dict[str, list[Spoken]] = {peer.name: [] for peer in peers}
        self.errors: dict[str, str] = {}

    def attach(self, model: "nn.Module", optimizer: "Optimizer") -> None:
        """Attach every peer to a model; one that is attached to another is done with that."""
        self.finish()
        self._models += 1
        for number, peer in enumerate(self._peers):
            if peer.name not in self.errors:
                folder = self._folder / f"{number}.{self._models}"
                folder.mkdir(parents=True)
                self._guarded(peer.name, partial(self._add, peer, model, optimizer, folder))

    def after_backward(self, loss: float) -> None:
        """Tell each that the gradients are there."""
        for name, watcher in list(self._watching.items()):
            self._guarded(name, partial(watcher.after_backward, loss))

    def after_update(self, loss: float) -> None:
        """Tell each that the optimizer has taken its step."""
        for name, watcher in list(self._watching.items()):
            self._guarded(name, partial(watcher.after_update, loss))

    def finish(self) -> None:
        """Detach each, the last one first, and gather what they found."""
        for name, watcher in reversed(list(self._watching.items())):
            self._guarded(name, partial(self._take, name, watcher))
        self._watching.clear()

    def _add(self, peer: InLoopPeer, model: "nn.Module", optimizer: "Optimizer", folder: Path) -> None:
        self._watching[peer.name] = peer.watch(model, optimizer, folder)

    def _take(self, name: str, watcher: Watcher) -> None:
        self.found[name] += [each for each in watcher.finish() if each not in self.found[name]]

    def _guarded(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001  a peer that fails must not stop the training, nor the others
            self.errors[name] = f"{type(error).__name__}: {error}"
            self._watching.pop(name, None)
