"""How a run is to be read, where only the user can say it: columns, which run, format, slices, units."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class ImportOptions(Struct, frozen=True):
    """How to read a foreign log: column names, run, format, units.

    Attributes:
        columns: The log's own name for a catalogue name or its short form, such as {"loss": "train/loss"}.
        run: Which of several runs in it, by its name or its number from 1; empty: the only one.
        format: Name of the importer; empty: told by content.
        tau_slices: The easy and the hard slice that tau compares; None: what the policy or run.json says.
        remembered: Columns as a policy names them; they count where a log has them, and `columns` go before them.
        policy: The policy's file as a reader would name it.
        units: The unit of a share by its catalogue name, such as {"mfu": "percent"}; absent: told by its range.
    """

    columns: Mapping[str, str] = MappingProxyType({})
    run: str = ""
    format: str = ""
    tau_slices: tuple[str, str] | None = None
    units: Mapping[str, str] = MappingProxyType({})
    remembered: Mapping[str, str] = MappingProxyType({})
    policy: str = ""


NO_IMPORT_OPTIONS = ImportOptions()
