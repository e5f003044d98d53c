"""The unit of work of a fleet: one source of runs, with all that its audit depends on."""

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.policy.acceptance import OPEN, AcceptanceCriteria


def portable(import_options: ImportOptions) -> ImportOptions:
    """Return the same options, made of what can be sent to another process."""
    return replace(
        import_options,
        columns=dict(import_options.columns),
        units=dict(import_options.units),
        remembered=dict(import_options.remembered),
    )


class RunSource(Struct, frozen=True, kw_only=True):
    """A run folder, a file or a log of another program, which may hold several runs; it can be sent to another process.

    Attributes:
        name: What the user sees: a path or an address without credentials.
        path: What is opened.
        import_options: What a log of another program does not say itself.
        criteria: Policy.
        fingerprint: Tells its present state and the audit of it from any other; empty: not known.
        written: When its newest file was written, Unix time; 0: not known.
        like: Healthy siblings that it is held against: of each what is opened, and its fingerprint.
    """

    name: str
    path: str
    import_options: ImportOptions = portable(NO_IMPORT_OPTIONS)
    criteria: AcceptanceCriteria = OPEN
    fingerprint: str = ""
    written: float = 0.0
    like: tuple[tuple[str, str], ...] = ()
