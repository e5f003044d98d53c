"""Which metrics a user means by the names on the command line."""

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from ckaudit.errors import UsageError
from ckaudit.metrics import Metric, metrics


def select(names: Sequence[str]) -> tuple[Metric, ...]:
    """Return the metrics that any of `names` means, in the order of the catalogue; without names, all.

    Args:
        names: Catalogue names or patterns such as "grad_*", rows such as "M19", or what other people call a metric. In the
            last two capitals do not count, and a hyphen is an underscore.

    Raises:
        UsageError: Where a name means none, with the nearest names.
    """
    catalogue = metrics().values()
    if not names:
        return tuple(catalogue)
    chosen = {metric.name for name in names for metric in _meant(name, catalogue)}
    return tuple(metric for metric in catalogue if metric.name in chosen)


def identifiers(metric: Metric) -> tuple[str, ...]:
    """Return all words that mean a metric: its name, its rows and what other people call it."""
    from ckaudit.metrics.catalogue import entries

    entry = entries().get(metric.name)
    return (metric.name, *entry.rows, *entry.also_called) if entry else (metric.name,)


def _meant(name: str, catalogue: Collection[Metric]) -> list[Metric]:
    found = [metric for metric in catalogue if fnmatchcase(metric.name, name)]
    # The prose of the catalogue is read only for a name that is no metric's own.
    found = found or [metric for metric in catalogue if _key(name) in map(_key, identifiers(metric))]
    if found:
        return found
    spelled = {_key(word): word for metric in catalogue for word in identifiers(metric)}
    near = [spelled[key] for key in get_close_matches(_key(name), spelled, n=3, cutoff=0.5)]
    hint = f"did you mean {' or '.join(near)}?" if near else "without a name, all metrics that have a value are shown"
    raise UsageError(f"no metric is called {name!r}", hint=hint)


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")
