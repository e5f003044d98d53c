"""The options that several commands of the lab share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli.options import one_of
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from ckaudit.lab.settings import Split

SPLITS = ("dev", "test", "both")

SplitName = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="dev (seeds 0, 1, 2: thresholds are tuned on it), test (10, 11: only scored), or both.",
        autocompletion=lambda: list(SPLITS),
    ),
]
Cache = Annotated[
    str,
    typer.Option(
        "--cache",
        metavar="DIR",
        help="Where recordings are kept; without it $XDG_CACHE_HOME/ckaudit/lab, or ~/.cache/ckaudit/lab.",
        show_default=False,
    ),
]
Only = Annotated[
    str,
    typer.Option(
        "--only", metavar="PATTERNS", help="Only names, or name.seed, that match, as in 'lr_*,healthy.0'.", show_default=False
    ),
]
Jobs = Annotated[str, typer.Option("--jobs", "-j", metavar="N", help="Processes at a time.")]


def splits(word: str) -> "list[Split]":
    """Return the splits that a word names, or raise `UsageError`."""
    one_of(word, SPLITS, "split")
    return ["dev", "test"] if word == "both" else [word]  # type: ignore[list-item]


def count(word: str, option: str) -> int:
    """Return a number of at least 1, or raise `UsageError`."""
    if not (word.isascii() and word.isdecimal() and int(word)):
        raise UsageError(f"{option} {word!r} is not a number of at least 1", hint=f"write it as digits, such as {option} 2")
    return int(word)


def cache_folder(word: str) -> Path:
    """Return the folder of recordings that was named, or the usual one, which need not be there, or raise `UsageError`."""
    from ckaudit.lab.cache import default_folder
    from ckaudit.lab.record import within_reach

    folder = Path(word) if word else default_folder()
    with within_reach(folder, "look into", option="--cache"):
        folder.exists()
    return folder
