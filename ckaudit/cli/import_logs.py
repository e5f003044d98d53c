"""`ckaudit import`: a run that another program logged becomes a run folder."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ckaudit.cli import options
from ckaudit.cli.inputs import refuse_inputs
from ckaudit.cli.options import Map, Which
from ckaudit.cli.output import progress, say, write_text
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.wording import plural

if TYPE_CHECKING:
    from ckaudit.importers import Imported

EPILOG = """
\b
Examples:
  ckaudit import trainer_state.json -o runs/finetune
  ckaudit import log.csv --map loss=train/nll --map step=iteration
  ckaudit import mlruns --list
  ckaudit import mlruns --run 2 -o runs/second
  ckaudit import --formats
\b
Every command takes such a log directly, as in `ckaudit triage log.csv`.
Without -o, the folder is named after the source: log.ckaudit for log.csv. If
the source holds several runs, each gets its own folder inside it.
\b
Exit codes:
  0  written
  2  nothing could be read, or the folder already holds a run
"""

Source = Annotated[str, typer.Argument(metavar="SRC", help="A log, or a folder that a tracker wrote.", show_default=False)]
Folder = Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder to write to.", show_default=False)]
As = Annotated[str, typer.Option("--format", "-f", metavar="NAME", help="Format of SRC; auto detects it from the content.")]
Runs = Annotated[bool, typer.Option("--list", help="List the runs in SRC and write nothing.")]
Formats = Annotated[bool, typer.Option("--formats", help="List all known formats.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing run.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress, notes and summary.")]


def command(
    source: Source = "",
    *,
    output: Folder = "",
    format: As = "auto",  # noqa: A002  what the option is called
    which: Which = "",
    map: Map = None,  # noqa: A002  what the option is called
    unit: options.Unit = None,
    list_runs: Runs = False,
    formats: Formats = False,
    force: Force = False,
    save_map: options.SaveMap = False,
    quiet: Quiet = False,
) -> int:
    """Convert another program's log to a run folder, with every number that has a name in the catalogue."""
    if formats:
        return _list_formats()
    options.check_save_map(map, save=save_map)
    if not source:
        raise UsageError("there is nothing to import", hint="name a log or a folder; --formats names what can be read")
    from msgspec.structs import replace

    from ckaudit.importers import import_runs, run_named

    path, import_options = (
        Path(source),
        replace(options.import_options(map, which, unit=unit), format="" if format == "auto" else format),
    )
    if not path.exists():
        raise UnreadableError(f"{path} does not exist", hint="Name a log or a folder that a tracker wrote.")
    runs = import_runs(path, import_options=import_options)
    if list_runs:
        return _list_runs(runs)
    chosen = [run_named(runs, which, path)] if which else runs
    chosen = [_in_catalogue_units(imported, import_options.units) for imported in chosen]
    folder = output or f"{path.resolve().name.split('.')[0] or 'run'}.ckaudit"
    _write(chosen, Path(folder), force=force, quiet=quiet)
    if save_map or not quiet:
        options.keep_columns(import_options, source, save=save_map)
    return 0


def _list_formats() -> int:
    """Print every readable format."""
    from ckaudit.importers import format_key, importers

    width = max(len(format_key(importer)) for importer in importers())
    write_text("".join(f"{format_key(importer):{width}}  {importer.NAME}\n" for importer in importers()))
    return 0


def _list_runs(runs: "Sequence[Imported]") -> int:
    """Print the runs of a source, numbered for `--run`."""
    from ckaudit.importers import summary
    from ckaudit.reports.escape import visible

    write_text("".join(f"{number}  {visible(summary(run))}\n" for number, run in enumerate(runs, 1)))
    return 0


def _in_catalogue_units(run: "Imported", chosen: Mapping[str, str]) -> "Imported":
    """Return a run with its shares converted to the catalogue's units."""
    import numpy as np
    from msgspec.structs import replace

    from ckaudit.run.builder import run_of_table
    from ckaudit.run.units import factor_to_catalogue, in_catalogue_units

    read = in_catalogue_units(run_of_table(run.name, run.table, reads=()), chosen)
    factors = {name: factor_to_catalogue(name, unit) for name, unit in read.units.items()}
    values = [row * factors.get(name.partition("/")[0], 1.0) for name, row in zip(run.table.names, run.table.values, strict=True)]
    table = replace(run.table, values=np.array(values).reshape(run.table.values.shape))
    return replace(run, table=table, notes=(*run.notes, *read.notes)) if read.notes else run


def _write(runs: "list[Imported]", folder: Path, *, force: bool, quiet: bool) -> None:
    from ckaudit.importers.folder import names_of_folders, run_files, write_run

    folders = [folder] if len(runs) == 1 else [folder / name for name in names_of_folders(runs)]
    for old in (path for into in folders for path in run_files(into)):
        refuse_inputs(old)
    with progress("writing", quiet=quiet) as tick:
        for number, (run, into) in enumerate(zip(runs, folders, strict=True), 1):
            try:
                write_run(run, into, force=force)
            except OSError as error:
                raise UnreadableError(
                    f"cannot write to {into}: {error.strerror or error}", hint="Nothing was left half written."
                ) from None
            if tick:
                tick(number, len(runs))
    for run, into in () if quiet else zip(runs, folders, strict=True):
        lines, names = len(run.table.steps), len(run.table.names) + len(run.table.texts)
        checkpoints = f", {len(run.documents):,} checkpoints" if run.documents else ""
        say(f"wrote {into}: {plural(lines, 'line')} of {plural(names, 'name')}{checkpoints}")
        for note in run.notes:
            say(f"note: {note}")
