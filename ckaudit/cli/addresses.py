"""Addresses and standard input on a command line: their content is copied here first, so that each command reads a path."""

import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.location import is_uri, shown

if TYPE_CHECKING:
    from pathlib import Path

    from ckaudit.cli.output import Tick

READ_ALL = frozenset({"convert", "hash", "resume-check"})
"""Commands that read weight files too."""

READ = READ_ALL | {"coverage", "data", "diff", "export", "gate", "import", "metrics", "probe", "report"}
READ |= {"mcp", "triage", "validate"}
"""Commands that read their operands once."""

READ_AHEAD = {"triage": "ckaudit.audit.engine", "validate": "ckaudit.validate"}
"""Commands that read one checkpoint after the other, and start before the last one is fetched; and the module that they load
meanwhile."""

WRITE = ("-o", "--output", "--out", "--into", "--write-checksums")
"""Options whose value is an output path."""

READ_LATER = ("--like",)
"""Options whose value may be a pattern of addresses, which is resolved later."""

STANDARD_INPUT = "-"
"""The operand for a log that is piped into the command."""

ONE_CHECKPOINT = re.compile(r"(.+)(@(?:\d+|last))", re.DOTALL)


def with_copies(arguments: Sequence[str], *, ahead: bool = True) -> list[str]:
    """Return a command line in which each address of a reading command, and `-`, is replaced by the path of a local copy.

    Args:
        arguments: The command line.
        ahead: Whether the command may start while checkpoints are still being fetched.

    Raises:
        UsageError: If an output is an address, or nothing is piped into the command.
        CkauditError: If an address cannot be read.
    """
    words = list(arguments)
    if not words or words[0] not in READ or {"-h", "--help"} & set(words):
        return words
    if not any("://" in word or word == STANDARD_INPUT for word in words):
        return words
    quiet = bool({"-q", "--quiet"} & set(words))
    for place in range(1, len(words)):
        if words[place] == STANDARD_INPUT and words[place - 1] not in WRITE:
            words[place] = _standard_input()
            continue
        option, equals, value = words[place].partition("=") if words[place].startswith("-") else ("", "", words[place])
        if not is_uri(value):
            continue
        name = option or words[place - 1]
        if name in WRITE:
            raise UsageError(f"{name}: {shown(value)} is an address", hint="write to a path of this machine")
        if name in READ_LATER:
            continue
        words[place] = option + equals + _copied(value, words[0], quiet=quiet, ahead=ahead)
    return words


def _copied(uri: str, command: str, *, quiet: bool, ahead: bool) -> str:
    """Return the path of a copy, followed by the step if one checkpoint of a run is meant."""
    from ckaudit.cli.output import progress
    from ckaudit.remote.mirror import local_copy

    with progress("fetching", quiet=quiet) as tick:
        if ahead and command in READ_AHEAD:
            return str(_copy_ahead(uri, command, tick))
        try:
            return str(local_copy(uri, everything=command in READ_ALL, progress=tick))
        except UnreadableError:
            one = ONE_CHECKPOINT.fullmatch(uri) if command == "diff" else None
            if one is None:
                raise
            return str(local_copy(one[1], progress=tick)) + one[2]


def _copy_ahead(uri: str, command: str, tick: "Tick | None") -> "Path":
    from importlib import import_module

    from ckaudit.remote.ahead import copy_ahead

    return copy_ahead(uri, progress=tick, meanwhile=lambda: import_module(READ_AHEAD[command]))


@cache
def _standard_input() -> str:
    """Return the path of a file with the content of standard input, which exists until the command ends."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: nothing is piped into this command", hint="python train.py | tee train.log | ckaudit triage -")
    import atexit
    import shutil
    import tempfile
    from pathlib import Path

    from ckaudit.importers.importer import MAX_IMPORT_BYTES
    from ckaudit.remote.addresses import remember

    folder = Path(tempfile.mkdtemp(prefix="ckaudit-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / "standard input"
    with copy.open("xb") as file:
        # A pipe may be endless: content beyond the size limit of a log is rejected when the copy is read.
        while file.tell() <= MAX_IMPORT_BYTES and (block := sys.stdin.buffer.read(2**20)):
            file.write(block)
    remember(copy, "standard input")
    return str(copy)
