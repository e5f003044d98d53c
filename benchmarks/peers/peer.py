"""What a peer is: how it is called, how its answer is read, and what its words mean."""

import json
import re
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from ckaudit.errors import UsageError
from ckaudit.lab.score.verdict import STALL, log_rows

Level = Literal["fail", "warn", "clean", "error"]
Answer = tuple[Level, list[str]]
SECONDS = 60  # the slowest of them takes one
WAITING = ("loader_time", "data_time")  # two readers, two names

_VERSIONS = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class Tool(Struct, frozen=True, kw_only=True):
    """One other tool.

    Attributes:
        name: Its package.
        reads: What it is given.
        means: Patterns of messages, and the truth of the lab that each means; a message may mean several, in this order.
        shows: Patterns of messages, and the symptom that each tells of.
    """

    name: str
    reads: str
    means: tuple[tuple[str, str], ...]
    shows: tuple[tuple[str, str], ...] = ()


class Peer(Tool, frozen=True, kw_only=True):
    """One that reads a log.

    Attributes:
        arguments: What follows the interpreter on the command line, for a log.
        read: Makes its level and its messages, gravest first, of what it prints.
        python: The interpreter that has it.
        version: Its version.
    """

    arguments: Callable[[Path], list[str]]
    read: Callable[[str], Answer]
    python: str = ""
    version: str = ""


class PeerVerdict(Struct, frozen=True, kw_only=True):
    """What a peer said of one run.

    Attributes:
        level: Whether it fails the run, warns of it, or finds it clean; "error": it could not read it.
        causes: What its messages mean, in their order.
        symptoms: What they tell of, whatever it means.
        messages: The messages.
        version: The peer's version.
    """

    level: Level
    causes: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    version: str = ""


def ask(peer: Peer, folder: Path) -> PeerVerdict:
    """Let a peer judge the log of a run."""
    log = folder / "log.jsonl"
    try:
        write_log(folder, log)
        done = _run([peer.python, *peer.arguments(log)])
        level, messages = peer.read(done)
    except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
        return PeerVerdict(level="error", messages=(str(error),), version=peer.version)
    finally:
        log.unlink(missing_ok=True)
    causes, symptoms = meaning(messages, peer.means), meaning(messages, peer.shows)
    return PeerVerdict(level=level, causes=causes, symptoms=symptoms, messages=tuple(messages), version=peer.version)


def write_log(folder: Path, path: Path) -> None:
    """Write a line of JSON for each line of the run's scalars, numbers that are not finite as Python writes them."""
    with path.open("w", encoding="utf-8") as stream:
        for row in log_rows(folder):
            stall = row.pop(STALL, None)
            waits = dict.fromkeys(WAITING, stall * row["step_time"]) if stall is not None and "step_time" in row else {}
            stream.write(json.dumps(row | waits) + "\n")


def meaning(messages: Sequence[str], means: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return the words that messages mean, in their order, each once."""
    found = [truth for message in messages for pattern, truth in means if re.search(pattern, message, re.IGNORECASE)]
    return tuple(dict.fromkeys(found))


def versions(python: str, names: Sequence[str], *, option: str = "--peers") -> dict[str, str]:
    """Return the versions of the packages that an interpreter has.

    Args:
        python: Path of the interpreter.
        names: The packages.
        option: By which the interpreter was named.

    Raises:
        UsageError: If it cannot be run.
    """
    try:
        found: dict[str, str] = json.loads(_run([python, "-c", _VERSIONS, *names]))
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UsageError(f"{option}: {python} cannot be run: {error}", hint="name a Python interpreter") from None
    return found


def _run(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout
