"""One training with peers attached, in the interpreter that has them: `python -m benchmarks.peers.train_with_peers`."""

import sys
from collections.abc import Sequence
from copy import deepcopy
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

import msgspec
from msgspec.structs import replace

from benchmarks.peers.in_loop import InLoopPeer, known
from benchmarks.peers.peer_cache import PeerAnswer, PeerRecording, adapter, path_of
from benchmarks.peers.watched import Told, WatchedChange, told
from ckaudit.lab.cache import provenance_of
from ckaudit.lab.change import Change
from ckaudit.lab.record import record
from ckaudit.lab.training_spec import Recipe, recipe


def run_training(what: Recipe, peers: Sequence[InLoopPeer]) -> Told:
    """Train with peers attached and return what they said; one that stops the training gives no answer.

    All watch the same training. Where that breaks off, each has one of its own, and those gave no answer whose own breaks
    off too.

    Args:
        what: What is trained.
        peers: Who watches.

    Raises:
        Exception: What stops the training without any of them.
    """
    try:
        return _train(what, peers)
    except Exception as error:
        if not peers:
            raise
        if len(peers) == 1:
            _train(what, ())  # is it the peer, or the training?
            return Told(found={}, errors={peers[0].name: f"it stops the training: {type(error).__name__}: {error}"})
    alone = [run_training(what, [peer]) for peer in peers]
    return Told(
        found={name: found for each in alone for name, found in each.found.items()},
        errors={name: error for each in alone for name, error in each.errors.items()},
    )


def _train(what: Recipe, peers: Sequence[InLoopPeer]) -> Told:
    with TemporaryDirectory(prefix="ckaudit-lab-") as temporary:
        folder = Path(temporary)
        (folder / "peers").mkdir()
        watched = cast("Change", WatchedChange(deepcopy(what.change), peers, folder / "peers"))
        record(replace(what, change=watched), folder / "run", grids="none")
        return told(folder / "peers")


def keep(cache: Path, what: Recipe, result: Told, versions: dict[str, str]) -> int:
    """Put into the cache what was said, and return the size of the file in bytes."""
    from torch import __version__ as torch_version

    from ckaudit.contract.io.files import write_atomic

    heard = {
        peer.name: PeerAnswer(
            version=versions[peer.package],
            adapter=adapter(peer),
            found=result.found.get(peer.name, []),
            error=result.errors.get(peer.name, ""),
        )
        for peer in known()
        if peer.package in versions
    }
    data = msgspec.json.encode(PeerRecording(made=provenance_of(what), torch=str(torch_version), heard=heard))
    cache.mkdir(parents=True, exist_ok=True)
    write_atomic(path_of(cache, what), msgspec.json.format(data, indent=1))
    return len(data)


def installed_versions() -> dict[str, str]:
    """Return the versions of the peers that this interpreter has, by package."""
    found = {}
    for package in {peer.package for peer in known()}:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def main(name: str, seed: str, cache: str) -> None:
    """Train, and keep what the peers of this interpreter said."""
    import atexit
    import os
    import warnings

    kept, scratch = Path(cache).absolute(), TemporaryDirectory(prefix="ckaudit-lab-")
    atexit.register(scratch.cleanup)  # handlers run last in, first out: after those of peers, which may leave a report here
    os.chdir(scratch.name)
    os.nice(10)  # hours of training leave the machine usable
    warnings.simplefilter("ignore")  # peers warn of what they do themselves
    what, versions = recipe(name, int(seed)), installed_versions()
    peers = [peer for peer in known() if peer.package in versions]
    keep(kept, what, run_training(what, peers), versions)


if __name__ == "__main__":
    main(*sys.argv[1:])
