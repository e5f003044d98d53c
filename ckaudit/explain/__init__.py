"""The meaning of a name: any metric, rule, cause, question, violation, gate or row, from the catalogues alone."""

from collections.abc import Iterable, Iterator

from ckaudit.audit.drop.guide import GUIDE, PROCEDURE
from ckaudit.audit.playbook import CONDITIONS, FIRST_LOOK, WORKFLOW
from ckaudit.causes import causes
from ckaudit.explain.catalogue_pages import cited_rows
from ckaudit.explain.names import is_known, kinds, known_names, pages_of, refuse_unknown
from ckaudit.explain.page import NameGroup, NameLine, Page
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import Category, categories, entry_of
from ckaudit.questions import questions
from ckaudit.questions.question import MAP
from ckaudit.rules import rules

__all__ = ["NameGroup", "NameLine", "Page", "explain", "groups", "is_known", "known_names", "refuse_unknown"]


def explain(names: Iterable[str]) -> list[Page]:
    """Return a page for each name, and several if a name has several meanings.

    Raises:
        UsageError: If a name is unknown; the hint lists the nearest ones.
    """
    return [page for name in names for page in pages_of(name)]


def groups() -> list[NameGroup]:
    """Return every name with one sentence: metrics by category, then rules, causes, questions, violations, gates and rows."""
    listed = [NameGroup(title=category.title, lines=tuple(_of_category(category))) for category in categories()]
    if alone := [name for name in metrics() if entry_of(name) is None]:
        listed.append(NameGroup(title="Metrics without a playbook", lines=tuple(_line(name) for name in alone)))
    return [
        *listed,
        _judged("Rules: which illnesses are recognised?", ((rule.name, rule.code, rule.title) for rule in rules().values())),
        _judged("Causes: what may lie behind them?", ((cause.name, "", cause.title) for cause in causes().values())),
        _judged(
            "Questions: how does it stand, phase by phase?",
            ((question.id, "", question.text) for question in questions().values()),
        ),
        _judged(
            "Violations: what may be wrong with the files?", ((kind.name, kind.code, kind.title) for kind in kinds().values())
        ),
        _judged(
            "Gates: why did a benchmark fall? In this order", ((asked.name, asked.row, asked.question) for asked in PROCEDURE)
        ),
        _judged("Guide: which part of the architecture to test?", ((row.name, row.row, row.title) for row in GUIDE)),
        _judged("First look: what may be behind what is seen?", ((look.name, look.row, look.seen) for look in FIRST_LOOK)),
        _judged(
            "Severities: what calls for them?", ((condition.name, condition.row, condition.title) for condition in CONDITIONS)
        ),
        _judged(
            "Work: what to do when something is ill? In this order", ((stage.name, stage.row, stage.title) for stage in WORKFLOW)
        ),
        _judged("Map: what shows it?", ((entry.id, "", entry.question) for entry in MAP)),
        _judged("Rows: what do sources cite?", ((name, "", row.title) for name, row in cited_rows().rows.items())),
    ]


def _judged(heading: str, rows: Iterable[tuple[str, str, str]]) -> NameGroup:
    lines = (NameLine(name=name, ids=(code,) if code else (), title=title) for name, code, title in rows)
    return NameGroup(title=heading, lines=tuple(lines))


def _of_category(category: Category) -> Iterator[NameLine]:
    """Yield each entry, followed by the metrics that share its playbook."""
    for name, entry in category.entries.items():
        yield _line(name, entry.rows)
        yield from (_line(other) for other in entry.covers)


def _line(name: str, rows: tuple[str, ...] = ()) -> NameLine:
    return NameLine(name=name, ids=rows, title=metrics()[name].title)
