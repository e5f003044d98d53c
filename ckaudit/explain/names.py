"""Every name that can be explained, every way to spell it, and the nearest to one that is not known."""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import NamedTuple

from ckaudit.audit import policy_run
from ckaudit.audit.drop.guide import GUIDE
from ckaudit.audit.drop.procedure import PROCEDURE
from ckaudit.audit.playbook.first_look import FIRST_LOOK
from ckaudit.audit.playbook.levels import CONDITIONS
from ckaudit.audit.playbook.workflow import WORKFLOW
from ckaudit.causes import causes
from ckaudit.contract import contradictions, watch
from ckaudit.contract.violations import KINDS, Kind
from ckaudit.diff import catalogue as compared
from ckaudit.errors import UsageError
from ckaudit.explain.judgement_pages import cause_page, rule_page, violation_page
from ckaudit.explain.metric_page import metric_page
from ckaudit.explain.page import Page
from ckaudit.explain.playbook_pages import condition_page, look_page, stage_page, way_page
from ckaudit.explain.procedure_pages import gate_page, guide_page
from ckaudit.explain.question_page import question_page
from ckaudit.explain.row_pages import cited_rows, row_page
from ckaudit.material import faults
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.questions import questions
from ckaudit.questions.bad_answer_table import BAD
from ckaudit.questions.phases import MAP
from ckaudit.resume import catalogue as resume_catalogue
from ckaudit.rules import rules
from ckaudit.validate import catalogue

# A kind of violation is known once its module is loaded.
KIND_MODULES = (contradictions, catalogue, faults, policy_run, compared, resume_catalogue, watch)
CODE = re.compile(r"([a-z]{3,6})\d{1,3}")


class Subject(NamedTuple):
    """One thing that can be explained.

    Attributes:
        words: Its name, then its codes or rows.
        others: What other people call it.
        page: Makes its page.
    """

    words: tuple[str, ...]
    others: tuple[str, ...]
    page: Callable[[], Page]


@cache
def subjects() -> tuple[Subject, ...]:
    """Return everything that can be explained, the procedure for a fallen benchmark included."""
    return tuple(_all())


def kinds() -> dict[str, Kind]:
    """Return every kind of violation by code, sorted."""
    return dict(sorted(KINDS.items()))


def known_names() -> list[str]:
    """Return every name, code and row, sorted."""
    return sorted({word for subject in subjects() for word in subject.words})


def pages_of(name: str) -> list[Page]:
    """Return the page of a name, or several where it means several things.

    Capitals do not count, and a hyphen is an underscore.

    Raises:
        UsageError: If the name is not known; the hint has the nearest.
    """
    refuse([] if is_known(name) else [name])
    return [subject.page() for subject in _index()[_key(name)]]


def is_known(name: str) -> bool:
    """Tell whether a name can be explained."""
    return _key(name) in _index()


def refuse(names: Sequence[str]) -> None:
    """Raise for names that are not known.

    Raises:
        UsageError: If there are any; the hint has the nearest to each.
    """
    if len(names) == 1:
        raise UsageError(f"unknown name {names[0]!r}", hint=_hint(names[0]))
    if names:
        hints = " ".join(f"{name}: {_hint(name)}" for name in names)
        raise UsageError(f"unknown names {', '.join(map(repr, names))}", hint=hints)


def _hint(name: str) -> str:
    """Return what may have been meant: for a code, the codes of its family, or else the nearest names."""
    if match := CODE.fullmatch(_key(name)):
        codes = {word for subject in subjects() for word in subject.words[1:]}
        if family := sorted(code for code in codes if CODE.fullmatch(_key(code)) and _key(code).startswith(match[1])):
            return f"did you mean {_either(get_close_matches(name.strip().upper(), family, n=3, cutoff=0) or family[:3])}?"
    spelled = {_key(word): word for subject in subjects() for word in (*subject.others, *subject.words)}
    near = [spelled[key] for key in get_close_matches(_key(name), spelled, n=3, cutoff=0.65)]
    return f"did you mean {_either(near)}?" if near else "ckaudit explain lists every name"


def _either(words: list[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


@cache
def _index() -> dict[str, list[Subject]]:
    """Return by spelling what is meant."""
    index: dict[str, list[Subject]] = {}
    for subject in subjects():
        for key in dict.fromkeys(_key(word) for word in (*subject.words, *subject.others)):
            index.setdefault(key, []).append(subject)
    return index


def _all() -> Iterator[Subject]:
    for name in metrics():
        entry = entries().get(name)
        rows, others = (entry.rows, entry.also_called) if entry else ((), ())
        yield Subject((name, *rows), others, partial(metric_page, name))
    for rule in rules().values():
        yield Subject((rule.name, rule.code), (), partial(rule_page, rule))
    for cause in causes().values():
        yield Subject((cause.name,), (), partial(cause_page, cause))
    for question in questions().values():
        named = (BAD[question.id].name,) if question.id in BAD else ()
        yield Subject((question.id, *named), (), partial(question_page, question))
    for kind in kinds().values():
        yield Subject((kind.name, kind.code), (), partial(violation_page, kind))
    for gate in PROCEDURE:
        yield Subject((gate.name, gate.row), (), partial(gate_page, gate))
    for row in GUIDE:
        yield Subject((row.name, row.row), (), partial(guide_page, row))
    for look in FIRST_LOOK:
        yield Subject((look.name, look.row), (), partial(look_page, look))
    for condition in CONDITIONS:
        yield Subject((condition.name, condition.row), (), partial(condition_page, condition))
    for stage in WORKFLOW:
        yield Subject((stage.name, stage.row), (), partial(stage_page, stage))
    for way in MAP:
        yield Subject((way.id,), (), partial(way_page, way))
    for name in cited_rows().rows:
        yield Subject((name,), (), partial(row_page, name))
