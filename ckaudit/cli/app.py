"""The Typer application: the list of commands, and what happens to a command line before its command reads it.

Addresses and standard input are copied to this machine first, so that each command reads a path.
"""

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from ckaudit import __version__
from ckaudit.cli.options import with_all_phases
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.remote.arrivals import ReadAgainError, end_all
from ckaudit.remote.location import is_uri, shown

if TYPE_CHECKING:
    from ckaudit.cli.output import Tick

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

COMMANDS = {
    "validate": "validate",
    "triage": "triage",
    "watch": "watch",
    "fleet": "fleet",
    "fleet query": "fleet_query",
    "metrics": "metrics",
    "explain": "explain",
    "report": "report",
    "diff": "diff",
    "gate": "compare_gate",
    "coverage": "coverage",
    "convert": "convert",
    "import": "import_logs",
    "export": "export",
    "data": "data",
    "hash": "hash_artifacts",
    "resume-check": "resume_check",
    "drill": "drill",
    "push": "push",
    "mcp": "mcp",
    "docs": "docs",
}
"""The module of each command."""

GROUPS = {"probe": "probe", "lab": "lab.app"}
"""The module of each group of commands."""

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

EPILOG = """
\b
Exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""


# `ckaudit --version` with other arguments; alone, it is answered before Typer is loaded.
def print_version(value: bool) -> None:
    """Print the version and exit, if the option was given."""
    if value:
        typer.echo(f"ckaudit {__version__}")
        raise typer.Exit


def build(only: Collection[str] = (*COMMANDS, *GROUPS)) -> typer.Typer:
    """Return the application, with plain help, because rich would double its time.

    Args:
        only: Names of the commands and groups to load; running a command needs only that one.
    """
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False, context_settings=SETTINGS)
    app.callback(epilog=EPILOG)(ckaudit)
    for name, place in COMMANDS.items():
        if name in only:
            module = import_module(f"ckaudit.cli.{place}")
            settings = getattr(module, "SETTINGS", None)
            # A shell cannot complete a command name of two words; the help of the first word mentions it.
            app.command(name, epilog=module.EPILOG, context_settings=settings, hidden=" " in name)(module.command)
    for name, place in GROUPS.items():
        if name in only:
            app.add_typer(import_module(f"ckaudit.cli.{place}").build(), name=name)
    return app


def ckaudit(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Audit neural-network training runs: what is wrong, since which step, where, and what to try first."""


def invoke(arguments: Sequence[str]) -> Any:
    """Run one command and return its exit code; usage errors are raised for the one handler."""
    words = _with_subcommand(arguments)
    try:
        code = _invoke(with_copies(words))
    except ReadAgainError:
        end_all(needed=True)
        return _invoke(with_copies(words, ahead=False))
    except BaseException:
        end_all(needed=False)
        raise
    end_all(needed=True)
    return code


def _invoke(arguments: Sequence[str]) -> Any:
    known = {*COMMANDS, *GROUPS}.intersection(arguments[:1])
    command = get_command(build(known) if known else build())
    # Typer 0.29 loads pydantic, 50 ms, to convert words to words. Versions without this attribute ignore it.
    context = SimpleNamespace(help_option_names=SETTINGS["help_option_names"])
    for subcommand in _all(command):
        for parameter in subcommand.get_params(context):
            parameter._runtime_param = UncoercedWords  # noqa: SLF001
    return command.main(args=with_all_phases(arguments), prog_name="ckaudit", standalone_mode=False)


def _with_subcommand(arguments: Sequence[str]) -> list[str]:
    """Return arguments with `fleet query` as one word, as the command is named, unless a run of that name is meant."""
    joined = " ".join(arguments[:2])
    is_one = len(arguments) > 1 and joined in COMMANDS and not Path(arguments[1]).exists()
    return [joined, *arguments[2:]] if is_one else list(arguments)


class UncoercedWords:
    """Replaces Typer's coercion of one parameter: words stay words, and the command parses them itself."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG004  the signature Typer calls
        """Return the typed value; an empty list for several values that were not given."""
        return () if value is None and (param.multiple or param.nargs == -1) else value


def _all(command: Any) -> Iterator[Any]:
    """Yield a command and, for a group, every command in it."""
    yield command
    for subcommand in getattr(command, "commands", {}).values():
        yield from _all(subcommand)


# Addresses and standard input, copied before the command reads them.
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


def _copy_ahead(uri: str, command: str, tick: "Tick | None") -> Path:
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
