"""The unit of work of a fleet: one source of runs, with all inputs of its audit."""

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria


def portable(import_options: ImportOptions) -> ImportOptions:
    """Return the same options, converted so that they can be sent to another process."""
    return replace(
        import_options,
        columns=dict(import_options.columns),
        units=dict(import_options.units),
        remembered=dict(import_options.remembered),
    )


class RunSource(Struct, frozen=True, kw_only=True):
    """A run folder, a file or a log of another program, which may hold several runs; it can be sent to another process.

    Attributes:
        name: Name for the user: a path or an address without credentials.
        path: Path or address to open.
        import_options: Facts that a log of another program lacks.
        criteria: Policy.
        fingerprint: Identifies its current state and the inputs of its audit; empty: not known.
        written: Unix time of its newest file; 0: not known.
        like: Healthy siblings to compare with: path or address, and fingerprint of each.
        is_match: A pattern found it by its name alone: if no run is known in it, it is passed over and has no row.
    """

    name: str
    path: str
    import_options: ImportOptions = portable(NO_IMPORT_OPTIONS)
    criteria: AcceptanceCriteria = OPEN
    fingerprint: str = ""
    written: float = 0.0
    like: tuple[tuple[str, str], ...] = ()
    is_match: bool = False
