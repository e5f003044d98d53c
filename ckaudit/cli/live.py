"""The live panel of `watch`: drawn anew once a second, on the terminal's other screen."""

import os
import sys
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

from ckaudit.reports.terminal.text import screen
from ckaudit.reports.terminal.watch import line, panel
from ckaudit.reports.view import View

if TYPE_CHECKING:
    from ckaudit.contract.schema.watch import WatchEvent
    from ckaudit.watch.scheduler import Rounds

EVERY = 0.95  # seconds between two drawings


def live(rounds: "Rounds", tell: "Callable[[WatchEvent], None]") -> int:
    """Watch with a panel; what was found is written below it when it ends, so that it stays.

    Args:
        rounds: The runs.
        tell: Takes each event besides.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    events: list[WatchEvent] = []
    console = Console(file=sys.stdout, highlight=False, markup=False)
    drawn = float("-inf")

    def keep(event: "WatchEvent") -> None:
        events.append(event)
        tell(event)

    with Live(console=console, screen=True, auto_refresh=False) as area:

        def draw() -> None:
            nonlocal drawn
            if monotonic() - drawn < EVERY:
                return
            drawn = monotonic()
            view = screen(View(), sys.stdout, os.environ)._replace(width=console.width)
            area.update(Text.from_ansi("\n".join(panel(rounds.snapshots(), view, console.height - 1))), refresh=True)

        try:
            return rounds.go(keep, after_look=draw)
        finally:
            area.stop()
            view = screen(View(), sys.stdout, os.environ)
            for event in events:
                if event.severity is not None:
                    sys.stdout.write(line(event, view) + "\n")
            sys.stdout.flush()
