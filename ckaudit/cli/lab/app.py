"""The list of the lab's commands."""

import typer

from ckaudit.cli.lab import curriculum, list_all, record, run, score, wild


def build() -> typer.Typer:
    """Return the group of commands, with plain help like the others."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lab)
    app.command("list", epilog=list_all.EPILOG)(list_all.command)
    app.command("run", epilog=run.EPILOG)(run.command)
    app.command("record", epilog=record.EPILOG)(record.command)
    app.command("score", epilog=score.EPILOG)(score.command)
    app.command("wild", epilog=wild.EPILOG)(wild.command)
    app.command("curriculum", epilog=curriculum.EPILOG)(curriculum.command)
    return app


def lab() -> None:
    """Train small models with one known fault each, and score the auditor on them."""
