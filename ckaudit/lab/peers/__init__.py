"""Other people's tools on the same runs: a small file for each, its defaults left alone.

Each runs in a process of its own, under an interpreter in which it is installed. What it says in words is read with a
table of what those words mean, which is kept generous.
"""

from ckaudit.lab.peers.peer import Peer


def installed(python: str) -> list[Peer]:
    """Return the tools that an interpreter has, with their versions.

    Args:
        python: Path of the interpreter.

    Raises:
        UsageError: If it cannot be run, or has none of them.
    """
    from msgspec.structs import replace

    from ckaudit.errors import UsageError
    from ckaudit.lab.peers.peer import versions
    from ckaudit.lab.peers.runmedic import RUNMEDIC
    from ckaudit.lab.peers.runwise import RUNWISE
    from ckaudit.lab.peers.trainproof import TRAINPROOF

    known = (TRAINPROOF, RUNMEDIC, RUNWISE)
    there = versions(python, [peer.name for peer in known])
    if not there:
        names = ", ".join(peer.name for peer in known)
        raise UsageError(f"{python} has none of {names}", hint=f"{python} -m pip install {names.replace(',', '')}")
    return [replace(peer, python=python, version=there[peer.name]) for peer in known if peer.name in there]
