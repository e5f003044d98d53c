"""The Typer application: the list of commands and what they share."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Annotated, Any

import typer
from typer.main import get_command

from ckaudit.cli import (
    compare_gate,
    convert,
    coverage,
    data,
    diff,
    explain,
    export,
    hash_artifacts,
    import_logs,
    metrics,
    report,
    resume_check,
    triage,
    validate,
    watch,
)
from ckaudit.cli.lab import app as lab
from ckaudit.cli.phases import alone
from ckaudit.cli.probe import app as probe
from ckaudit.cli.version import print_version

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

EPILOG = """
\b
Exit codes:
  0  nothing at or above --fail-on
  1  findings at or above --fail-on
  2  could not audit, or nothing could be judged
"""


def build() -> typer.Typer:
    """Return the application with every command; plain help, because rich would double the time it takes to show."""
    app = typer.Typer(
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
    )
    app.callback(epilog=EPILOG)(ckaudit)
    app.command("validate", epilog=validate.EPILOG)(validate.command)
    app.command("triage", epilog=triage.EPILOG)(triage.command)
    app.command("watch", epilog=watch.EPILOG)(watch.command)
    app.command("metrics", epilog=metrics.EPILOG)(metrics.command)
    app.command("explain", epilog=explain.EPILOG)(explain.command)
    app.command("report", epilog=report.EPILOG)(report.command)
    app.command("diff", epilog=diff.EPILOG)(diff.command)
    app.command("gate", epilog=compare_gate.EPILOG)(compare_gate.command)
    app.command("coverage", epilog=coverage.EPILOG)(coverage.command)
    app.command("convert", epilog=convert.EPILOG)(convert.command)
    app.command("import", epilog=import_logs.EPILOG)(import_logs.command)
    app.command("export", epilog=export.EPILOG)(export.command)
    app.command("data", epilog=data.EPILOG)(data.command)
    app.command("hash", epilog=hash_artifacts.EPILOG)(hash_artifacts.command)
    app.command("resume-check", epilog=resume_check.EPILOG)(resume_check.command)
    app.add_typer(probe.build(), name="probe")
    app.add_typer(lab.build(), name="lab")
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
    command = get_command(build())
    _take_as_typed(command)
    return command.main(args=alone(arguments), prog_name="ckaudit", standalone_mode=False)


class AsTyped:
    """Stands in for Typer's coercion of one parameter: words stay words, and the command reads them itself."""

    @staticmethod
    def coerce(value: Any, param: Any, ctx: Any) -> Any:  # noqa: ARG004  the signature Typer calls
        """Return what was typed; several values that were not given are none."""
        return () if value is None and (param.multiple or param.nargs == -1) else value


def _take_as_typed(command: Any) -> None:
    # Typer 0.29 loads pydantic, 50 ms, to turn words into words. Versions without this attribute never read it.
    context = SimpleNamespace(help_option_names=SETTINGS["help_option_names"])
    for each in _all(command):
        for parameter in each.get_params(context):
            parameter._runtime_param = AsTyped  # noqa: SLF001


def _all(command: Any) -> Iterator[Any]:
    """Yield a command and, of a group, every command in it."""
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _all(each)
