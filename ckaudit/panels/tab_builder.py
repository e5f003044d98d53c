"""The board of one tab: charts are put on it, and where there is nothing to draw, the reason."""

from collections.abc import Sequence
from typing import Any

from ckaudit.contract.schema.panels import Chart
from ckaudit.panels.context import Scene
from ckaudit.panels.draw import bars, curves, heat
from ckaudit.panels.missing import why_missing
from ckaudit.panels.pictures import FIELD, grids, ridges, why_none


class Board:
    """Charts of one tab, and what could not be drawn.

    Attributes:
        scene: The run, and the one beside it.
        charts: In the order they were put up.
        missing: One sentence for each thing that is missing, each once.
    """

    def __init__(self, scene: Scene) -> None:
        """Begin with an empty board."""
        self.scene = scene
        self.charts: list[Chart] = []
        self.missing: list[str] = []

    def curves(self, name: str, title: str, *shown: str, also: Sequence[str] = (), **how: Any) -> None:
        """Put up metrics over steps; `also` are further ones whose absence is not told."""
        self.put(curves(self.scene, name, title, [*shown, *also], **how), *shown, *how.get("right", ()))

    def heat(self, name: str, title: str, metric: str, **how: Any) -> None:
        """Put up a map of places by steps."""
        self.put(heat(self.scene, name, title, metric, **how), metric)

    def bars(self, name: str, title: str, metric: str, **how: Any) -> None:
        """Put up the last values as bars."""
        self.put(bars(self.scene, name, title, metric, **how), metric)

    def ridges(self, name: str, title: str, section: str) -> None:
        """Put up histograms over time."""
        self._from_checkpoints(ridges(self.scene, name, title, section), section, "histogram")

    def grids(self, name: str, title: str, section: str) -> None:
        """Put up sampled matrices with a slider."""
        self._from_checkpoints(grids(self.scene, name, title, section), section, FIELD[section])

    def _from_checkpoints(self, chart: Chart | None, section: str, field: str) -> None:
        self.put(chart)
        self.lack("" if chart else why_none(self.scene, section, field))

    def put(self, chart: Chart | None, *needed: str) -> None:
        """Put up a chart where there is one, and say what of the metrics it needs is missing."""
        if chart is not None:
            self.charts.append(chart)
        for name in needed:
            self.lack(why_missing(self.scene.run, name))

    def lack(self, sentence: str) -> None:
        """Say that something is missing; an empty sentence says nothing."""
        if sentence and sentence not in self.missing:
            self.missing.append(sentence)
