"""View settings, the same for all renderers: width, colours, level of detail, what fails."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ckaudit.contract.schema.report import Place, PlaceKey, Severity


class View(NamedTuple):
    """What the reader asked for and what the screen supports.

    Attributes:
        verbose: Leave nothing out.
        quiet: Leave out what is not a finding.
        base: Folder of the findings' files relative to the reader's working folder, with `/`; empty: the same folder.
        width: Columns of the screen; None: there is no screen, so nothing needs to be cut.
        colour: Whether ANSI colours may be used.
        unicode: Whether characters beyond ASCII may be used.
        pictures: Draw charts.
        limit: Number of equal findings shown before the rest are only counted.
        fail_on: The lowest severity that is shown as a failure; None: as in `words.failing_severities`.
        places: File and line at which findings that name no file begin, if they were looked up.
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
        """Return how many columns to use: those of the screen within two limits, or 100 if there is no screen."""
        return min(widest, max(narrowest, self.width or 100))


PLAIN = View()
