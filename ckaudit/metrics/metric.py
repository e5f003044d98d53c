"""Definition of a metric: a pure function from a run to a series, with its inputs and its source."""

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from ckaudit.catalogue import Catalogue
from ckaudit.run.run import Run
from ckaudit.run.series import Series

MetricFunction = Callable[[Run], Series]
Worst = Literal["high", "low", "first"]


class Metric(Struct, frozen=True, eq=False):
    """One catalogued metric. Calling it computes the series once per run.

    Attributes:
        name: Catalogue name, the function's own.
        unit: Unit of the values.
        reads: Paths into checkpoints ("gradients.*.norm") and names of scalars ("train_loss_raw").
        source: Where the definition comes from.
        title: The docstring's first sentence.
        memory: Number of past points that a value depends on; None: all.
        uses: Names of the metrics that it is computed from.
        worst: Label to show first: the one of greatest magnitude, the lowest, or the first.
    """

    name: str
    unit: str
    reads: tuple[str, ...]
    source: str
    title: str
    memory: int | None
    function: MetricFunction
    uses: tuple[str, ...] = ()
    worst: Worst = "high"

    def __call__(self, run: Run) -> Series:
        """Return the series of a run under the metric's own name and unit."""
        return run.derived(self.name, lambda: self.function(run).named(self.name, self.unit))

    @property
    def paths(self) -> frozenset[str]:
        """The paths into checkpoints among `reads`."""
        return frozenset(path for path in self.reads if "." in path)


_METRICS: Catalogue[Metric] = Catalogue("metric", "ckaudit.metrics")


def metric(
    *, unit: str, reads: Iterable[str | Metric], source: str, memory: int | None = None, worst: Worst = "high"
) -> Callable[[MetricFunction], Metric]:
    """Register a function in the catalogue of metrics.

    Args:
        unit: Unit of the values, "1" for a pure number.
        reads: Inputs: checkpoint paths, scalar names, or other metrics.
        source: Source of the definition.
        memory: Number of past points that a value depends on; None: all.
        worst: Label to show first, as in `Metric`.
    """

    def enter(function: MetricFunction) -> Metric:
        parts = tuple(reads)
        flat = [part for read in parts for part in (read.reads if isinstance(read, Metric) else (read,))]
        title = (function.__doc__ or "").strip().partition("\n")[0]
        uses = tuple(part.name for part in parts if isinstance(part, Metric))
        entry = Metric(function.__name__, unit, tuple(dict.fromkeys(flat)), source, title, memory, function, uses, worst)
        return _METRICS.add(entry.name, entry)

    return enter


def metrics_among(inputs: Iterable[object]) -> list[Metric]:
    """Return the metrics among the inputs of a rule or a question."""
    return [candidate for candidate in inputs if isinstance(candidate, Metric)]


def metrics() -> dict[str, Metric]:
    """Return every metric by name, sorted; those of plugins follow the built-in ones."""
    return _METRICS.units()
