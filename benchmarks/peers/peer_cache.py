"""What peers said in the loop, kept in the cache beside the recordings, so that scoring needs no training."""

import ast
import inspect
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from benchmarks.peers.in_loop import InLoopPeer, Spoken, known, verdict_of
from benchmarks.peers.peer import PeerVerdict
from ckaudit.lab.cache import CachedTraining, Provenance, code, differences, must_be_trained_again, provenance_of
from ckaudit.lab.training_spec import Recipe

HERE = Path(__file__).parent
SHARED = ("in_loop.py", "watched.py")  # when peers are told what


class PeerAnswer(Struct, frozen=True, kw_only=True):
    """What one peer said of one training, in its own words; what they mean is looked up when they are scored.

    Attributes:
        version: The peer's version.
        adapter: Hash of how it was attached.
        found: Its findings: how grave, and the message.
        error: Why it gave no answer.
    """

    version: str
    adapter: str
    found: list[Spoken] = []
    error: str = ""


class PeerRecording(Struct, frozen=True, kw_only=True):
    """One training with peers attached.

    Attributes:
        made: What was trained.
        torch: By which version of PyTorch.
        heard: What each said, by name.
    """

    made: Provenance
    torch: str
    heard: dict[str, PeerAnswer]


def path_of(cache: Path, recipe: Recipe) -> Path:
    """Return the file of a training, there or not."""
    return cache / f"{recipe.name}.{recipe.seed}.peers.json"


def cached_recording(cache: Path, recipe: Recipe) -> tuple[CachedTraining, PeerRecording | None]:
    """Return the state of a training's file as of a recording, and what it holds if it is one."""
    path = path_of(cache, recipe)
    if not path.exists():
        return CachedTraining(recipe=recipe, path=path, state="missing"), None
    try:
        recording = msgspec.json.decode(path.read_bytes(), type=PeerRecording)
    except (OSError, msgspec.DecodeError) as error:
        return CachedTraining(recipe=recipe, path=path, state="unreadable", why=str(error)), None
    now = provenance_of(recipe)
    if not (why := ", ".join(differences(recording.made, now))):
        return CachedTraining(recipe=recipe, path=path, state="fresh"), recording
    return CachedTraining(
        recipe=recipe, path=path, state="stale" if must_be_trained_again(recording.made, now) else "older", why=why
    ), recording


def is_due(cache: Path, recipe: Recipe, peers: dict[str, str]) -> bool:
    """Tell whether a training has to be done for its peers.

    Args:
        cache: Where it is looked for.
        recipe: The training.
        peers: The versions of the peers that could be attached, by package.
    """
    entry, recording = cached_recording(cache, recipe)
    if not entry.usable or recording is None:
        return True
    wanted = {peer.name: (peers[peer.package], adapter(peer)) for peer in known() if peer.package in peers}
    return any(
        name not in recording.heard or (recording.heard[name].version, recording.heard[name].adapter) != as_now
        for name, as_now in wanted.items()
    )


def peer_verdicts(cache: Path, recipe: Recipe, peers: Sequence[InLoopPeer]) -> dict[str, PeerVerdict]:
    """Return what peers said of a training, those left out that were attached in another way or not at all."""
    entry, recording = cached_recording(cache, recipe)
    if not entry.usable or recording is None:
        return {}
    there = [(peer, recording.heard[peer.name]) for peer in peers if peer.name in recording.heard]
    return {
        peer.name: verdict_of(peer, each.found, version=each.version, error=each.error)
        for peer, each in there
        if each.adapter == adapter(peer)
    }


def adapter(peer: InLoopPeer) -> str:
    """Return a hash of the code that attaches a peer: classes, without comments and tables of words."""
    return _adapter(Path(inspect.getfile(peer.watch)))


@cache
def _adapter(path: Path) -> str:
    files = [path, *(HERE / name for name in SHARED)]
    return sha256("\0".join(map(_classes, files)).encode()).hexdigest()[:16]


def _classes(path: Path) -> str:
    return "\n".join(ast.unparse(node) for node in ast.parse(code(path)).body if isinstance(node, ast.ClassDef))
