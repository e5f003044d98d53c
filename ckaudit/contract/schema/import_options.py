"""Options for reading a run that only the user knows: columns, which run, format, slices, units."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct


class ImportOptions(Struct, frozen=True):
    """How to read the log of another program: column names, run, format, units.

    Attributes:
        columns: The log's own name for a catalogue name or its short form, such as {"loss": "train/loss"}.
        run: Name or number (from 1) of one of several runs in the log; empty: the only one.
        format: Name of the importer; empty: detected from the content.
        tau_slices: The easy and the hard slice that tau compares; None: those of the policy or run.json.
        remembered: Columns named by a policy; they count if a log has them, and `columns` take precedence.
        policy: Name of the policy file to show.
        units: The unit of a share by its catalogue name, such as {"mfu": "percent"}; absent: detected from its range.
    """

    columns: Mapping[str, str] = MappingProxyType({})
    run: str = ""
    format: str = ""
    tau_slices: tuple[str, str] | None = None
    units: Mapping[str, str] = MappingProxyType({})
    remembered: Mapping[str, str] = MappingProxyType({})
    policy: str = ""


NO_IMPORT_OPTIONS = ImportOptions()
