"""Other people's tools on the runs of the lab: a small file for each, its defaults left alone.

    python -m benchmarks.peers record --in-loop PYTHON
    python -m benchmarks.peers score --peers PYTHON

Each runs in a process of its own, under an interpreter in which it is installed. What it says in words is read with a
table of what those words mean, which is kept generous.
"""

from benchmarks.peers.peer import Peer


def installed(python: str) -> list[Peer]:
    """Return the tools that an interpreter has, with their versions.

    Args:
        python: Path of the interpreter.

    Raises:
        UsageError: If it cannot be run, or has none of them.
    """
    from msgspec.structs import replace

    from benchmarks.peers.peer import versions
    from benchmarks.peers.runmedic import RUNMEDIC
    from benchmarks.peers.runwise import RUNWISE
    from benchmarks.peers.trainproof import TRAINPROOF
    from ckaudit.errors import UsageError

    known = (TRAINPROOF, RUNMEDIC, RUNWISE)
    there = versions(python, [peer.name for peer in known])
    if not there:
        names = ", ".join(peer.name for peer in known)
        raise UsageError(f"{python} has none of {names}", hint=f"{python} -m pip install {names.replace(',', '')}")
    return [replace(peer, python=python, version=there[peer.name]) for peer in known if peer.name in there]
