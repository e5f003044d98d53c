"""Which metrics a user means by the names on the command line."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ckaudit.errors import UsageError
from ckaudit.metrics import Metric, metrics


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics that any of `names` means, in the order of the catalogue; without names, all.

    Args:
        names: Catalogue names, or patterns such as "grad_*".

    Raises:
        UsageError: Where a name means none, with the nearest names.
    """
    catalogue = metrics().values()
    if not names:
        return tuple(catalogue)
    chosen = {metric.name for name in names for metric in _meant(name, catalogue)}
    return tuple(metric for metric in catalogue if metric.name in chosen)


def identifiers(metric: Metric) -> tuple[str, ...]:
    """Return all words that mean a metric."""
    return (metric.name,)


def _meant(name: str, catalogue: Iterable[Metric]) -> list[Metric]:
    found = [metric for metric in catalogue if any(fnmatchcase(word, name) for word in identifiers(metric))]
    if not found:
        known = [word for metric in catalogue for word in identifiers(metric)]
        near = get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "without a name, all metrics that have a value are shown"
        raise UsageError(f"no metric is called {name!r}", hint=hint)
    return found
