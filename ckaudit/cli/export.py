"""`ckaudit export`: the scalars of a run as a table or log for other programs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.inputs import refuse_inputs
from ckaudit.cli.options import Map, Run, Which
from ckaudit.cli.output import check_folder, open_output, progress, say
from ckaudit.errors import CkauditError, UsageError

if TYPE_CHECKING:
    from ckaudit.contract.schema.manifest import Manifest
    from ckaudit.run.scalars import LoggedScalars

EPILOG = """
\b
Examples:
  ckaudit export runs/nano --to parquet -o nano.parquet
  ckaudit export trainer_state.json --to tensorboard -o events/
  ckaudit export runs/nano -o nano.csv
\b
Formats:
  parquet      a row per line, a column per name; null: not recorded; NaN,
  arrow        sessions, words and run.json are kept
  csv          the same without run.json; empty cell: not recorded
  tensorboard  a folder with an event file for each session, in 64 bits;
               words and run.json are kept as texts
  wandb-csv    a history with _step; without run.json and without data
               that a resume replaced
Every format is read back as it was written, value for value.
Without --to, the suffix of FILE decides: .parquet, .arrow, .feather or .csv.
\b
In DuckDB:
  SELECT step, train_loss_raw FROM 'nano.parquet'
  WHERE train_loss_raw IS NOT NULL AND NOT isnan(train_loss_raw);
\b
Exit codes:
  0  written
  2  nothing could be read or written, or the output already exists
"""

FORMATS = ("parquet", "arrow", "csv", "tensorboard", "wandb-csv")
_BY_SUFFIX = {".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow", ".csv": "csv"}

To = Annotated[
    str,
    typer.Option(
        "--to", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.", show_default=False, autocompletion=lambda: list(FORMATS)
    ),
]
Output = Annotated[
    str, typer.Option("--output", "-o", metavar="FILE", help="File to write; a folder for tensorboard.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Replace existing output.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress, notes and summary.")]


def command(
    run: Run,
    *,
    to: To = "",
    output: Output = "",
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    force: Force = False,
    quiet: Quiet = False,
) -> int:
    """Write the scalars of a run for other programs; values are not rounded, and missing values stay missing."""
    if not output:
        raise UsageError("there is nothing to write to", hint="name it: -o FILE")
    path = Path(output)
    format_ = to or _BY_SUFFIX.get(path.suffix.lower(), "")
    if not format_:
        raise UsageError(f"the end of {path.name} tells no format", hint=f"name one: --to {', '.join(FORMATS)}")
    check_folder(output)
    format, target = options.checked_choice(format_, FORMATS, "format"), path  # noqa: A001  what the option is called
    _refuse_to_replace(format, target, force=force)
    import_options = options.import_options(map, which)
    from ckaudit.audit.load_run import scalars_of

    with progress("reading", quiet=quiet) as tick:
        logged = scalars_of(Path(run), import_options=import_options, progress=tick)
    _write(logged, format, target, quiet=quiet)
    if not quiet:
        _tell(logged, format, target)
    return 0


def _refuse_to_replace(format: str, target: Path, *, force: bool) -> None:  # noqa: A002  what the option is called
    """Raise `UsageError` if the target exists and may not, or cannot, be replaced."""
    if format != "tensorboard":
        if target.is_dir():
            raise UsageError(f"{target} is a folder", hint="name a file")
        if target.exists() and not force:
            raise UsageError(f"{target} stands there already", hint="choose another -o, or replace it with --force")
        return
    if target.exists() and not target.is_dir():
        raise UsageError(f"{target} is no folder", hint="tensorboard reads folders of event files; name one")
    for path in _events(target):
        refuse_inputs(path)
    if _events(target) and not force:
        raise UsageError(f"{target} holds event files already", hint="choose another -o, or replace them with --force")


def _events(folder: Path) -> list[Path]:
    return sorted(folder.glob("events.out.tfevents.*")) if folder.is_dir() else []


def _write(logged: "LoggedScalars", format: str, target: Path, *, quiet: bool) -> None:  # noqa: A002  what the option is called
    from ckaudit.reports.scalars import write, write_folder

    with progress("writing", quiet=quiet) as tick:
        if format != "tensorboard":
            with open_output(str(target)) as stream:
                write(logged, format, stream, tick)
            return
        old = _events(target)
        try:
            target.mkdir(exist_ok=True)
            for path in old:
                path.unlink()
            write_folder(logged, format, target, tick)
        except OSError as error:
            raise CkauditError(f"cannot write to {target}: {error.strerror or error}", hint="choose another --output") from None


def _tell(logged: "LoggedScalars", format: str, target: Path) -> None:  # noqa: A002  what the option is called
    """Report what was written, and what the format cannot represent."""
    names = len(logged.numbers) + len(logged.words)
    sessions = f" of {len(logged.sessions):,} sessions" if len(logged.sessions) > 1 else ""
    say(f"wrote {target}: {logged.lines:,} lines of {names:,} names{sessions}")
    for note in logged.notes:
        say(f"note: {note}")
    if logged.checkpoints:
        say(f"note: of {logged.checkpoints:,} checkpoints only the scalars are exported; ckaudit metrics writes the rest")
    if logged.findings:
        say(f"note: {len(logged.findings):,} faults in its files: ckaudit validate names them")
    if format == "wandb-csv" and len(logged.sessions) > 1:
        say("note: a W&B history only goes on: what a resume replaced was left out")
    if format in ("csv", "wandb-csv") and _says_more_than_sessions(logged.manifest):
        say("note: a CSV has no room for run.json, so what the run says of itself was left out; parquet keeps it")


def _says_more_than_sessions(manifest: "Manifest | None") -> bool:
    """Tell whether a manifest contains anything besides its sessions, which each line of a table names."""
    from msgspec import UNSET
    from msgspec.structs import replace

    from ckaudit.contract.schema.manifest import Manifest

    return manifest is not None and replace(manifest, sessions=UNSET) != Manifest(schema_version=manifest.schema_version)
