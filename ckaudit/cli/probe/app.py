"""The list of the probes' commands."""

import typer

from ckaudit.cli.probe import init, memorization, score, toxicity


def build() -> typer.Typer:
    """Return the group of commands, with plain help like the others."""
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(probe)
    app.command("toxicity", epilog=toxicity.EPILOG)(toxicity.command)
    app.command("memorization", epilog=memorization.EPILOG)(memorization.command)
    app.command("init", epilog=init.EPILOG)(init.command)
    app.command("score", epilog=score.EPILOG)(score.command)
    return app


def probe() -> None:
    """Measure what a model's generations give away: toxicity, memorized text, and how it continues reserved passages."""
