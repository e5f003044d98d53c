"""The unit of work of a fleet: one source of runs, with all that its audit depends on."""

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.import_options import NO_IMPORT_OPTIONS, ImportOptions
from ckaudit.policy.gate import OPEN, Gate


def portable(choice: ImportOptions) -> ImportOptions:
    """Return the same choice, made of what can be sent to another process."""
    return replace(choice, columns=dict(choice.columns), units=dict(choice.units), remembered=dict(choice.remembered))


class RunSource(Struct, frozen=True, kw_only=True):
    """A run folder, a file or a log of another program, which may hold several runs; it can be sent to another process.

    Attributes:
        name: What the user sees: a path or an address without credentials.
        path: What is opened.
        choice: What a log of another program does not say itself.
        gate: Policy.
        fingerprint: Tells its present state and the audit of it from any other; empty: not known.
        written: When its newest file was written, Unix time; 0: not known.
        like: Healthy siblings that it is held against: of each what is opened, and its fingerprint.
    """

    name: str
    path: str
    choice: ImportOptions = portable(NO_IMPORT_OPTIONS)
    gate: Gate = OPEN
    fingerprint: str = ""
    written: float = 0.0
    like: tuple[tuple[str, str], ...] = ()
