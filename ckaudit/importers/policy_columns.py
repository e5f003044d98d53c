"""Columns that a policy remembers: each is taken where a log has it, and none makes a log unreadable."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.contract.schema.import_options import ImportOptions
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.importers.importer import Imported, Importer, Source
from ckaudit.importers.names import SHORT_NAMES, shorten_name


def read_with(importer: Importer, source: Source, import_options: ImportOptions) -> list[Imported]:
    """Read every run of a source with the columns that the user names, and those that the policy does, as far as they are there.

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
    """Tell whether a source has a column; whether that column alone makes it readable is another question."""
    try:
        importer.read(source, column)
    except UnreadableError:
        return True
    except UsageError:
        return False
    return True
