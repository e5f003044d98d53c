"""`ckaudit --version` where other words stand beside it; alone it is answered before Typer is loaded."""

import typer

from ckaudit import __version__


def print_version(value: bool) -> None:
    """Print the version and leave, if the option was given."""
    if value:
        typer.echo(f"ckaudit {__version__}")
        raise typer.Exit
