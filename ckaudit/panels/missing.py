"""Why a picture is missing, and what would bring it, in the words of `ckaudit coverage`."""

from ckaudit.audit.coverage.applicability import missing_inputs, unusable, why_not_metric
from ckaudit.audit.coverage.remedies import lines_for
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries, entry_of, owner_of
from ckaudit.run.run import Run


def why_missing(run: Run, name: str) -> str:
    """Return in one sentence why nothing of a metric can be drawn; empty where something can."""
    series = metrics()[name](run)
    if series:
        return "" if series.finite.any() else f"{name} was recorded, but never as a finite number"
    if reason := why_not_metric(run, name):
        return f"{name} makes no sense here: {reason}"
    entry = entry_of(name)
    if entry is not None and entry in entries() and (reason := unusable(run, entry)):
        return f"{name} could not be computed: {reason}"
    return f"{name} was not recorded{_line(run, name)}"


def _line(run: Run, name: str) -> str:
    owner = owner_of(name)
    if owner is None or owner not in entries():
        return ""
    lacks = missing_inputs(run, owner)
    lines = dict.fromkeys(line.strip() for lack in lacks or (owner,) for line in lines_for(lack))
    needs = f" (it is made of {', '.join(lacks)})" if lacks and lacks != (name,) else ""
    return f"{needs}; to record it: {'; '.join(lines)}" if lines else needs
