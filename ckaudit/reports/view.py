"""View settings, the same for every renderer: width, colours, how much is said, what fails."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ckaudit.contract.schema.report import Place, PlaceKey, Severity


class View(NamedTuple):
    """What the reader asked for and what the screen can do.

    Attributes:
        verbose: Leave nothing out.
        quiet: Leave out what is not a finding.
        base: Folder of the findings' files as seen from the reader's working folder, in `/`; empty: the same folder.
        width: Columns of the screen; None where there is no screen, so nothing need be cut to fit.
        colour: Whether ANSI colours may be used.
        unicode: Whether characters beyond ASCII may be used.
        pictures: Draw pictures.
        limit: Equal findings shown before the rest are only counted.
        fail_on: The least grave severity that is drawn as a failure; None: as `words.failing_severities` says.
        places: File and line at which findings that name no file begin, where that was looked up.
    """

    verbose: bool = False
    quiet: bool = False
    base: str = ""
    width: int | None = None
    colour: bool = False
    unicode: bool = True
    pictures: bool = True
    limit: int = 20
    fail_on: "Severity | None" = None
    places: "Mapping[PlaceKey, Place]" = MappingProxyType({})

    def columns(self, narrowest: int = 40, widest: int = 110) -> int:
        """Return how many columns to draw on: those of the screen within two limits, 100 where no screen says how many."""
        return min(widest, max(narrowest, self.width or 100))


PLAIN = View()
