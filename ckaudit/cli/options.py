"""The options that commands share, and the parsing of their values."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from ckaudit.errors import UsageError
from ckaudit.remote.addresses import address_of
from ckaudit.reports import FORMATS

if TYPE_CHECKING:
    from ckaudit.contract.schema.import_options import ImportOptions
    from ckaudit.contract.schema.report import Severity


SEVERITIES = ("sev0", "sev1", "sev2", "note")


def format_option(names: Collection[str]) -> Any:
    """Return the option that chooses one of a command's formats."""
    return typer.Option(
        "--format", "-f", metavar="FORMAT", help=f"One of {', '.join(names)}.", autocompletion=lambda: list(names)
    )


def file_format_option(names: Collection[str]) -> Any:
    """Return the option that chooses one of a command's formats; without it, `format_for` asks the suffix of --output."""
    return typer.Option(
        "--format",
        "-f",
        metavar="FORMAT",
        help=f"One of {', '.join(names)}. Default: by the suffix of --output, else terminal.",
        autocompletion=lambda: list(names),
        show_default=False,
    )


_SUFFIXES = {
    "json": "json",
    "md": "markdown",
    "markdown": "markdown",
    "sarif": "sarif",
    "xml": "junit",
    "csv": "csv",
    "parquet": "parquet",
    "arrow": "arrow",
    "feather": "arrow",
    "html": "html",
    "htm": "html",
    "pdf": "pdf",
    "svg": "svg",
    "png": "png",
}
"""Format that the suffix of a file promises; any other suffix, such as .txt, promises nothing."""


def format_for(word: str, output: str, formats: Sequence[str]) -> str:
    """Return the format to write: the named one, else that of the output's suffix, else the first.

    >>> format_for("", "x.json", FORMATS), format_for("markdown", "x.json", FORMATS), format_for("", "x.txt", FORMATS)
    ('json', 'markdown', 'terminal')

    Raises:
        UsageError: If there is no such format, or the suffix is that of a format that the command does not write.
    """
    if word:
        return checked_choice(word, formats, "format")
    suffix = Path(output).suffix.removeprefix(".").lower()
    promised = "sarif" if output.lower().endswith(".sarif.json") else _SUFFIXES.get(suffix, formats[0])
    if promised not in formats:
        drawn = "; ckaudit report draws a run as html, svg or png" if promised in ("html", "svg", "png") else ""
        raise UsageError(f"this command writes no .{suffix}", hint=f"name a --format: {', '.join(formats)}{drawn}")
    return promised


Format = Annotated[str, file_format_option(FORMATS)]
FailOn = Annotated[
    str,
    typer.Option(
        "--fail-on",
        metavar="SEVERITY",
        help="Exit with 1 at this severity or above: sev0, sev1, sev2 or note. Default: the policy's, or sev1.",
        autocompletion=lambda: list(SEVERITIES),
        show_default=False,
    ),
]
Output = Annotated[
    str,
    typer.Option("--output", "-o", metavar="FILE", help="Write the report to FILE instead of the screen.", show_default=False),
]
Require = Annotated[
    str,
    typer.Option(
        "--require",
        metavar="vital",
        help="vital: exit with 2 if a vital check (loss, validation, gradients, ...) could not judge.",
        show_default=False,
    ),
]
TauSlices = Annotated[
    str,
    typer.Option(
        "--tau-slices",
        metavar="EASY,HARD",
        help="The two slices that tau compares. Default: those of the policy or run.json, or regular,irregular.",
        show_default=False,
    ),
]
AllowEmpty = Annotated[bool, typer.Option("--allow-empty", help="Exit with 0 if nothing could be judged.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show everything.")]


def checked_choice(word: str, choices: Sequence[str], what: str) -> str:
    """Return `word` if it is one of `choices`.

    Raises:
        UsageError: If it is not; the message names the nearest choice, or all of them.
    """
    if word in choices:
        return word
    near = get_close_matches(word, choices, n=1)
    hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(choices)}"
    raise UsageError(f"unknown {what} {word!r}", hint=hint)


def severity(word: str) -> "Severity":
    """Return the severity in `word`, or raise `UsageError`."""
    return cast("Severity", checked_choice(word, SEVERITIES, "severity"))


def step(word: str | None, option: str = "--step") -> int | None:
    """Return the step in `word`, or raise `UsageError`."""
    if word is None:
        return None
    if word.startswith("-") and word[1:].isdecimal():
        raise UsageError(f"{option} {word} is negative", hint=f"steps start at 0; write it like {option} 500")
    if not (word.isascii() and word.isdecimal()):
        raise UsageError(f"{option} {word!r} is not a whole number", hint=f"write it as digits, such as {option} 500")
    return int(word)


def seconds(word: str, option: str, *, allow_zero: bool = True) -> float:
    """Return the seconds in `word`, or raise `UsageError`."""
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number < inf or (number == 0 and not allow_zero):
        raise UsageError(f"{option} {word!r} is no number of seconds", hint=f"write it like {option} 60")
    return number


SaveMap = Annotated[bool, typer.Option("--save-map", help="Save the --map columns in ckaudit.toml for the next call.")]
Unit = Annotated[
    list[str] | None,
    typer.Option(
        "--unit",
        metavar="NAME=UNIT",
        help="Read the share NAME as percent or fraction, as in mfu=percent; may be repeated.",
        show_default=False,
    ),
]


def columns(pairs: Sequence[str]) -> Mapping[str, str]:
    """Return the mapping in `name=column` pairs, or raise `UsageError`."""
    mapping: dict[str, str] = {}
    for pair in pairs:
        name, equals, column = pair.partition("=")
        if not (name and equals and column):
            raise UsageError(f"--map {pair!r} is not NAME=COLUMN", hint="write it like --map loss=train/loss")
        if name in mapping:
            raise UsageError(f"--map names {name!r} twice", hint="map each name to one column")
        mapping[name] = column
    return mapping


def units(pairs: Sequence[str]) -> Mapping[str, str]:
    """Return the units in `name=unit` pairs, or raise `UsageError`; whether they are valid units is checked later."""
    named: dict[str, str] = {}
    for pair in pairs:
        name, equals, unit = pair.partition("=")
        if not (name and equals and unit):
            raise UsageError(f"--unit {pair!r} is not NAME=percent or NAME=fraction", hint="write it like --unit mfu=percent")
        if named.get(name, unit) != unit:
            raise UsageError(f"--unit names {name!r} twice", hint="name one unit for each share")
        named[name] = unit
    return named


def import_options(
    pairs: Sequence[str] | None,
    run: str,
    *,
    unit: Sequence[str] | None = None,
    tau_slices: str = "",
    config: str = "",
    no_config: bool = False,
) -> "ImportOptions":
    """Return the import options of a run: --map, --run, --unit and --tau-slices, and the columns of the policy."""
    from ckaudit.effective_policy import import_options_under, policy_as_written

    policy = None if no_config else policy_as_written(config)
    given, in_units = columns(pairs or []), units(unit or [])
    return import_options_under(policy, columns=given, run=run, tau_slices=two_slices(tau_slices), units=in_units)


def check_save_map(pairs: Sequence[str] | None, *, save: bool) -> None:
    """Raise `UsageError` if --save-map has nothing to save."""
    if save and not pairs:
        raise UsageError("--save-map without --map", hint="name the columns to save: --map loss=COLUMN --save-map")


def keep_columns(import_options: "ImportOptions", run: str, *, save: bool = False) -> None:
    """Write the columns that the user named into the policy if requested, else print the lines that would keep them there.

    A run folder has no columns to be named.
    """
    new = {name: column for name, column in import_options.columns.items() if import_options.remembered.get(name) != column}
    if not new:
        return
    from ckaudit.audit.load_run import is_ours

    if is_ours(Path(run)):
        return
    from ckaudit.cli.output import say
    from ckaudit.policy.save_columns import lines_of, save_columns

    if save:
        say(f"wrote {os.path.relpath(save_columns(new, Path.cwd()))}: it keeps what --map named")
        return
    say("hint: ckaudit.toml keeps what --map named with these lines, which ckaudit triage --save-map writes:")
    for line in lines_of(new):
        say(f"  {line}")


def two_slices(word: str) -> tuple[str, str] | None:
    """Return the easy and the hard slice in `word`, None if it is empty, or raise `UsageError`."""
    names = [name.strip() for name in word.split(",")]
    if not word:
        return None
    if len(names) != 2 or not all(names) or names[0] == names[1]:
        raise UsageError(f"--tau-slices {word!r} is not EASY,HARD", hint="write it like --tau-slices regular,irregular")
    return names[0], names[1]


def base(paths: Sequence[str]) -> str:
    """Return the folder that file names in the report are relative to; empty: the working folder.

    Files are named relative to the audited folder if that is the only argument, else as the user named them.
    """
    first, *others = dict.fromkeys(paths)
    if others or not Path(first).is_dir():
        return ""
    if address := address_of(first):
        return address
    relative = os.path.relpath(first)
    if relative.startswith(os.pardir):
        return first
    return "" if relative == os.curdir else relative.replace(os.sep, "/")


# The option --questions: the phases to answer; all of them if it has no value.
QUESTIONS = "--questions"
ALL_PHASES = "1-7"
PHASE_LIST = re.compile(r"[\d,-]+")
Questions = Annotated[
    str,
    typer.Option(
        QUESTIONS,
        metavar="[PHASES]",
        help="Answer the playbook's questions instead, for all seven phases or the given ones, as in 3, 1,4 or 1-3.",
        show_default=False,
        autocompletion=lambda: list("1234567"),
    ),
]


def with_all_phases(arguments: Sequence[str]) -> list[str]:
    """Return arguments with the default value of the option, if it was given without one.

    >>> with_all_phases(["triage", "--questions", "runs/a"]), with_all_phases(["triage", "runs/a", "--questions", "1,4"])
    (['triage', '--questions=1-7', 'runs/a'], ['triage', 'runs/a', '--questions', '1,4'])
    """
    words = list(arguments)
    for place, word in enumerate(words):
        if word == "--":
            break
        if word == QUESTIONS and not PHASE_LIST.fullmatch(" ".join(words[place + 1 : place + 2])):
            words[place] = f"{QUESTIONS}={ALL_PHASES}"
    return words


def phases(word: str) -> tuple[int, ...]:
    """Return the phases in a word such as 1,4-6, in order; none for an empty one.

    Raises:
        UsageError: If it contains anything else.
    """
    numbers: set[int] = set()
    for part in word.split(",") if word else ():
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        if not all(len(end) == 1 and end in "1234567" for end in ends) or ends[0] > ends[1]:
            raise UsageError(f"{QUESTIONS} {word!r} names no phases", hint=f"phases are 1 to 7: write {QUESTIONS} 3, 1,4 or 1-3")
        numbers.update(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(sorted(numbers))


Run = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run folder, a checkpoint, or another program's log, such as a trainer_state.json (`ckaudit import "
        "--formats`): its path, its address, such as s3://bucket/run, or - for standard input.",
        show_default=False,
    ),
]
Step = Annotated[
    str, typer.Option("--step", metavar="N", help="Judge the run as it was at step N. Default: its end.", show_default=False)
]
Which = Annotated[
    str,
    typer.Option("--run", metavar="WHICH", help="Name or number of the run, if the source holds several.", show_default=False),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="NAME=COLUMN",
        help="Read NAME from COLUMN of a CSV, as in loss=train/loss; may be repeated.",
        show_default=False,
    ),
]
