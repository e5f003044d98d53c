"""The Typer application: the list of commands and their common code."""

from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.main import get_command

from ckaudit import __version__
from ckaudit.cli.addresses import with_copies
from ckaudit.cli.options import with_all_phases
from ckaudit.remote.arrivals import ReadAgainError, end_all

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
