"""What the series of a run say to one question, before anything is weighed."""

from collections.abc import Iterable, Iterator
from typing import Any

from ckaudit.audit.coverage.applicability import why_not_metric
from ckaudit.causes.cause import Findings
from ckaudit.metrics import Metric
from ckaudit.questions.question import FindingsMarker, Input, Question, SeriesAnswer, unrecorded
from ckaudit.run.run import Run

BROKE = "the question broke: "


def said(asked: Question, run: Run, findings: Findings) -> SeriesAnswer:
    """Return what the series say; an input that was recorded, but never as a number, is bad, and what is missing is named.

    Args:
        asked: The question.
        run: The run.
        findings: Findings that are more than a note.
    """
    needed = [(need, need(run)) for need in asked.needs if isinstance(need, Metric)]
    if missing := [metric.name for metric, series in needed if not series]:
        foreign = next((reason for name in missing if (reason := why_not_metric(run, name))), "")
        if foreign:
            return SeriesAnswer(word="not_applicable", sentence=foreign)
        return unrecorded(f"needs {', '.join(missing)}", *missing)
    if broken := [metric.name for metric, _ in needed if not _has_number(metric, run)]:
        return SeriesAnswer(word="bad", sentence=f"no value of {', '.join(broken)} is a number")
    try:
        return asked.function(*_values(asked.needs, run, findings), *_values(asked.wants, run, findings))
    except Exception as error:  # noqa: BLE001  one broken question must not cost the answers of the others
        return unrecorded(f"{BROKE}{type(error).__name__}: {error}")


def _values(inputs: Iterable[Input], run: Run, findings: Findings) -> Iterator[Any]:
    """Yield each input's value in a run; a series without a single number counts as missing."""
    for input_ in inputs:
        if isinstance(input_, Metric):
            yield input_(run) if _has_number(input_, run) else None
        else:
            yield findings if isinstance(input_, FindingsMarker) else run.manifest


def _has_number(metric: Metric, run: Run) -> bool:
    return run.derived(("has a number", metric.name), lambda: bool(metric(run).finite.any()))
