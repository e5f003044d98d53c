"""The page of a question: what it looks at, what is good and bad, and which findings bear on it."""

from ckaudit.causes.links import metric_names
from ckaudit.explain.cited import cited
from ckaudit.explain.docstring import sections, sentences_about, thresholds
from ckaudit.explain.judgement_pages import SEVERITY
from ckaudit.explain.page import Page
from ckaudit.metrics import Metric
from ckaudit.questions.bad_answer_table import BAD, Bad
from ckaudit.questions.phases import MAP, PHASES
from ckaudit.questions.question import Input, Question
from ckaudit.rules import rules
from ckaudit.rules.rule import FactsMarker


def question_page(question: Question) -> Page:
    """Return the page of a question, with its limits and the sentences of its docstring that speak of each."""
    codes = {rule.name: rule.code for rule in rules().values()}
    links = {
        "needs": _names(question.needs),
        "looks at if recorded": _names(question.wants),
        "never better than": tuple(f"{codes[name]} {name}" for name in question.rules),
        "weighs by place and time": tuple(f"{codes[name]} {name}" for name in question.weighs),
        "to be watched where likely": question.causes,
    }
    ways = ", ".join(f"{way.id} {way.question}" for way in MAP if question.phase in way.phases)
    bad = BAD.get(question.id)
    facts = {
        "a bad answer": "is at worst to be watched" if bad is None else _of(bad),
        "phase": f"{question.phase}: {PHASES[question.phase]}",
        "asked by": f"ckaudit triage RUN --questions {question.phase}",
        "look on with": ways,
        "cited": cited([question.doc]),
    }
    return Page(
        kind="question",
        name=question.id,
        ids=() if bad is None else (bad.name,),
        title=question.text,
        facts={label: said for label, said in facts.items() if said},
        thresholds=thresholds(question.function, lambda name: sentences_about(name, question.doc)),
        links={label: found for label, found in links.items() if found},
        sections=sections(question.doc),
    )


def _of(bad: Bad) -> str:
    """Return what a bad answer is as a finding."""
    means = f"; any finding of {', '.join(bad.means)} makes it bad" if bad.means else ""
    return f"is the finding `{bad.name}`, {bad.severity} ({SEVERITY[bad.severity]}), where no rule's finding says it{means}"


def _names(inputs: tuple[Input, ...]) -> tuple[str, ...]:
    return metric_names(tuple(each for each in inputs if isinstance(each, Metric | FactsMarker)))
