"""`ckaudit convert`: the same checkpoints in another encoding."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ckaudit.cli.options import checked_choice
from ckaudit.cli.output import progress, say
from ckaudit.errors import UnreadableError, UsageError

EPILOG = """
\b
Examples:
  ckaudit convert runs/nano -o small/ --grids q8 --suffix .json.zst
  ckaudit convert runs/nano -o plain/ --grids nested --digits 4
\b
Exit codes:
  0  every file was written
  1  some files are broken, the others were written
  2  nothing could be written
"""

GRIDS, HISTOGRAMS, SUFFIXES = ("q8", "nested", "none"), ("range", "edges"), (".json", ".json.gz", ".json.zst")

Sources = Annotated[list[str], typer.Argument(metavar="SRC", help="Run folders or checkpoint files.", show_default=False)]
Folder = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.", show_default=False)]
Grids = Annotated[
    str,
    typer.Option(
        "--grids",
        metavar="HOW",
        help="Grids as q8 bytes (off by (max - min) / 510 at most), nested numbers, or none.",
        show_default=False,
        autocompletion=lambda: list(GRIDS),
    ),
]
Histogram = Annotated[
    str,
    typer.Option(
        "--histogram",
        metavar="HOW",
        help="Histogram bins as a range, if they have equal width, or as edges.",
        show_default=False,
        autocompletion=lambda: list(HISTOGRAMS),
    ),
]
Digits = Annotated[
    str,
    typer.Option(
        "--digits",
        metavar="N",
        help="Significant digits of nested grids, edges and percentiles. Default: all.",
        show_default=False,
    ),
]
Suffix = Annotated[
    str,
    typer.Option(
        "--suffix",
        metavar="SUFFIX",
        help="Pack files as .json, .json.gz or .json.zst.",
        show_default=False,
        autocompletion=lambda: list(SUFFIXES),
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress and summary.")]


def command(
    sources: Sources,
    *,
    output: Folder = "",
    grids: Grids = "",
    histogram: Histogram = "",
    digits: Digits = "",
    suffix: Suffix = "",
    force: Force = False,
    quiet: Quiet = False,
) -> int:
    """Write checkpoints in another encoding; data that no option names and unknown fields are kept as they are."""
    chosen = _choices(grids, histogram, digits, suffix)
    if not output:
        raise UsageError("there is no folder to write to", hint="name one: -o DIR")
    from ckaudit.contract.io.convert import Encoding, plan_jobs, run_jobs

    jobs = plan_jobs([Path(source) for source in sources], Path(output), suffix or None, force=force)
    try:
        with progress("converting", quiet=quiet) as tick:
            done = run_jobs(jobs, Encoding(**chosen), tick)
    except OSError as error:
        raise UnreadableError(
            f"cannot write to {output}: {error.strerror or error}", hint="Nothing was left half written."
        ) from None
    for finding in done.broken:
        say(f"error: {finding.file}: {finding.message}")
    if not done.files:
        return 2
    if not quiet:
        say(f"wrote {done.files} of {len(jobs)} files to {output}: {done.read:,} bytes became {done.written:,}")
    return 1 if done.broken else 0


def _choices(grids: str, histogram: str, digits: str, suffix: str) -> dict[str, Any]:
    """Return the requested encoding, or raise `UsageError`."""
    if suffix:
        checked_choice(suffix, SUFFIXES, "suffix")
    if digits and not (digits.isascii() and digits.isdecimal() and 1 <= int(digits) <= 17):
        raise UsageError(f"--digits {digits!r} is not a number of digits", hint="a float has 1 to 17, such as --digits 4")
    return {
        "grids": checked_choice(grids, GRIDS, "grid encoding") if grids else None,
        "histogram": checked_choice(histogram, HISTOGRAMS, "histogram encoding") if histogram else None,
        "digits": int(digits) if digits else None,
    }
