"""Columns that a policy file names: each is used where a log has it, and none makes a log unreadable."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.names import SHORT_NAMES, shorten_name


def read_with(importer: Importer, source: Source, import_options: ImportOptions) -> list[Imported]:
    """Read all runs of a source with the columns that the user names, and those from the policy that the source has.

    Raises:
        UnreadableError: Where the source is broken, or holds no value.
        UsageError: Where the user names something that does not exist.
    """
    named = {SHORT_NAMES.get(name, name) for name in import_options.columns}
    kept = {name: column for name, column in import_options.remembered.items() if SHORT_NAMES.get(name, name) not in named}
    if not kept:
        return importer.read(source, import_options.columns)
    try:
        runs = importer.read(source, {**kept, **import_options.columns})
    except UsageError:
        kept = {name: column for name, column in kept.items() if _takes(importer, source, {name: column})}
        runs = importer.read(source, {**kept, **import_options.columns})
    if not kept:
        return runs
    pairs = ", ".join(f"{name} from {shorten_name(column)}" for name, column in kept.items())
    return [replace(run, notes=(*run.notes, f"as import.map in {import_options.policy} says: {pairs}")) for run in runs]


def _takes(importer: Importer, source: Source, column: Mapping[str, str]) -> bool:
    """Tell whether a source has a column; that column alone need not make the source readable."""
    try:
        importer.read(source, column)
    except UnreadableError:
        return True
    except UsageError:
        return False
    return True
