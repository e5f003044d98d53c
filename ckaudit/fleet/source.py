"""The unit of work of a fleet: one source of runs, with all that its audit depends on."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract.schema.import_options import NOTHING_SAID, Choice
from ckaudit.policy.gate import OPEN, Gate


class Source(Struct, frozen=True, kw_only=True):
    """A run folder, a file or a log of another program, which may hold several runs; it can be sent to another process.

    Attributes:
        name: What the user sees: a path or an address without credentials.
        path: What is opened.
        choice: What a log of another program does not say itself.
        gate: Policy.
        fingerprint: Tells its present state and the audit of it from any other; empty: not known.
    """

    name: str
    path: str
    choice: Choice = NOTHING_SAID
    gate: Gate = OPEN
    fingerprint: str = ""


def portable(choice: Choice) -> Choice:
    """Return the same choice, made of what other processes can be sent."""

    def plain(mapping: Mapping[str, str]) -> dict[str, str]:
        return dict(mapping)

    return replace(choice, columns=plain(choice.columns), units=plain(choice.units), remembered=plain(choice.remembered))
