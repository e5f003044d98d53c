"""All names that can be explained, all their spellings, and the names nearest to an unknown one."""

import re
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from functools import cache, partial
from typing import NamedTuple

from msgspec.structs import asdict

from ckaudit.audit import engine
from ckaudit.audit.coverage.remedies import lines_for
from ckaudit.audit.drop.gates import DATA, INTERNAL
from ckaudit.audit.drop.guide import GUIDE, ONE_AXIS, PROCEDURE, GateDescription, GuideRow
from ckaudit.audit.playbook import CONDITIONS, FIRST_LOOK, WORKFLOW
from ckaudit.causes import causes
from ckaudit.causes.shared.links import causes_reading, metric_names, rules_reading
from ckaudit.contract import contradictions
from ckaudit.contract.schema import watch
from ckaudit.contract.violations import KINDS, ViolationKind
from ckaudit.diff import catalogue as compared
from ckaudit.diff.siblings import kinds as beside_siblings
from ckaudit.errors import UsageError
from ckaudit.explain.catalogue_pages import (
    SEVERITY,
    cause_page,
    cited_rows,
    condition_page,
    first_look_page,
    map_page,
    row_page,
    rule_page,
    stage_page,
    violation_page,
)
from ckaudit.explain.docstring import Documentation, cited, documentation, sections, sentences_about, thresholds
from ckaudit.explain.page import Formula, Page, Section, Shapes
from ckaudit.material import files
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import CatalogueEntry, Category, categories, entries, entry_of
from ckaudit.questions import questions
from ckaudit.questions.bad_answer_table import BAD, BadAnswer
from ckaudit.questions.question import MAP, PHASES, Input, Question
from ckaudit.resume import catalogue as resume_catalogue
from ckaudit.rules import rules
from ckaudit.rules.rule import FactsMarker
from ckaudit.validate import catalogue

# These modules register their kinds of violation when imported.
KIND_MODULES = (contradictions, catalogue, files, engine, compared, beside_siblings, resume_catalogue, watch)

CODE = re.compile(r"([a-z]{3,6})\d{1,3}")

METRICS_OF_GATE = {
    "SR-1": ("eval_artifact_hash", "val_loss"),
    "SR-2": tuple(number.metric.name for number in DATA),
    "SR-3": (*(number.metric.name for number in INTERNAL), "nan_inf_events"),
}


class ExplainedName(NamedTuple):
    """One thing that can be explained.

    Attributes:
        words: Its name, then its codes or rows.
        others: Other names for it.
        page: Returns its page.
    """

    words: tuple[str, ...]
    others: tuple[str, ...]
    page: Callable[[], Page]


@cache
def subjects() -> tuple[ExplainedName, ...]:
    """Return everything that can be explained, including the procedure for a fallen benchmark."""
    return tuple(_all())


def kinds() -> dict[str, ViolationKind]:
    """Return every kind of violation by code, sorted."""
    return dict(sorted(KINDS.items()))


def known_names() -> list[str]:
    """Return every name, code and row, sorted."""
    return sorted({word for subject in subjects() for word in subject.words})


def pages_of(name: str) -> list[Page]:
    """Return the page of a name, or several if it has several meanings.

    Case does not matter, and a hyphen equals an underscore.

    Raises:
        UsageError: If the name is unknown; the hint lists the nearest ones.
    """
    refuse_unknown([] if is_known(name) else [name])
    return [subject.page() for subject in _index()[_key(name)]]


def is_known(name: str) -> bool:
    """Tell whether a name can be explained."""
    return _key(name) in _index()


def refuse_unknown(names: Sequence[str]) -> None:
    """Raise an error for unknown names.

    Raises:
        UsageError: If there are any; the hint lists the nearest to each.
    """
    if len(names) == 1:
        raise UsageError(f"unknown name {names[0]!r}", hint=_hint(names[0]))
    if names:
        hints = " ".join(f"{name}: {_hint(name)}" for name in names)
        raise UsageError(f"unknown names {', '.join(map(repr, names))}", hint=hints)


def _hint(name: str) -> str:
    """Return likely alternatives: for a code, the codes of its family, else the nearest names."""
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
def _index() -> dict[str, list[ExplainedName]]:
    """Return the names of each spelling."""
    index: dict[str, list[ExplainedName]] = {}
    for subject in subjects():
        for key in dict.fromkeys(_key(word) for word in (*subject.words, *subject.others)):
            index.setdefault(key, []).append(subject)
    return index


def _all() -> Iterator[ExplainedName]:
    for name in metrics():
        entry = entries().get(name)
        rows, others = (entry.rows, entry.also_called) if entry else ((), ())
        yield ExplainedName((name, *rows), others, partial(metric_page, name))
    for rule in rules().values():
        yield ExplainedName((rule.name, rule.code), (), partial(rule_page, rule))
    for cause in causes().values():
        yield ExplainedName((cause.name,), (), partial(cause_page, cause))
    for question in questions().values():
        named = (BAD[question.id].name,) if question.id in BAD else ()
        yield ExplainedName((question.id, *named), (), partial(question_page, question))
    for kind in kinds().values():
        yield ExplainedName((kind.name, kind.code), (), partial(violation_page, kind))
    for gate in PROCEDURE:
        yield ExplainedName((gate.name, gate.row), (), partial(gate_page, gate))
    for row in GUIDE:
        yield ExplainedName((row.name, row.row), (), partial(guide_page, row))
    for look in FIRST_LOOK:
        yield ExplainedName((look.name, look.row), (), partial(first_look_page, look))
    for condition in CONDITIONS:
        yield ExplainedName((condition.name, condition.row), (), partial(condition_page, condition))
    for stage in WORKFLOW:
        yield ExplainedName((stage.name, stage.row), (), partial(stage_page, stage))
    for way in MAP:
        yield ExplainedName((way.id,), (), partial(map_page, way))
    for name in cited_rows().rows:
        yield ExplainedName((name,), (), partial(row_page, name))


# The page of a metric: definition from its docstring, playbook from the catalogue, and its readers from their inputs.
def metric_page(name: str) -> Page:
    """Return the page of a metric, with the playbook of the entry that covers it.

    Facts of the entry's own number, such as its computation, its alert and its shapes, are on the entry's page only.
    """
    metric, owner = metrics()[name], entry_of(name)
    documented = documentation(metric.function)
    own, entry = entries().get(name), entries()[owner] if owner else None
    covers = own.covers if own else ()
    defined = tuple(Formula(tex=tex) for tex in documented.formulas)
    names = (name, *covers)
    links = {
        "read by rules": tuple(f"{rule.code} {rule.name}" for rule in rules_reading(names)),
        "weighed by causes": tuple(cause.name for cause in causes_reading(names)),
    }
    return Page(
        kind="metric",
        name=name,
        ids=own.rows if own else (),
        also_called=own.also_called if own else (),
        title=metric.title,
        formulas=defined + tuple(Formula(row=row, tex=tex) for row, tex in (own.formulas if own else {}).items()),
        facts=_facts(metric, documented, entry, own),
        importance={"scale": asdict(own.scale), "stage": asdict(own.stage)} if own else {},
        thresholds=thresholds(metric.function, lambda name: documented.arguments.get(name, "")),
        links={label: target for label, target in links.items() if target} | ({"told together with": covers} if covers else {}),
        line="\n".join(lines_for(entries()[owner].elsewhere.get(name, owner))) if owner else "",
        sections=_playbook(entry) if entry else (),
        belongs_to=owner if owner and not own else "",
        shapes=Shapes(good=own.good, bad=own.bad, good_values=own.good_shape, bad_values=own.bad_shape) if own else None,
    )


def category_of(entry: CatalogueEntry) -> Category:
    """Return the category of an entry."""
    return next(category for category in categories() if entry in category.entries.values())


def _facts(metric: Metric, documented: Documentation, entry: CatalogueEntry | None, own: CatalogueEntry | None) -> dict[str, str]:
    """Return the short facts in display order; `own` is the entry if it belongs to the metric itself."""
    facts = {"category": category_of(entry).name} if entry else {}
    facts |= {"unit": "a pure number" if metric.unit == "1" else metric.unit, "shape": documented.details.removeprefix("Shape ")}
    facts |= {"computed": own.computed} if own else {}
    facts |= {"reads": ", ".join(metric.reads), "source": metric.source}
    if own:
        facts |= {"typical": own.typical, "sampling": own.sampling, "alert": own.alert, "alert from": own.alert_source}
    facts |= {"recorded by": entry.record} if entry else {}
    facts |= {"cited": cited([metric.source, own.alert_source if own else ""])}
    return {label: text for label, text in facts.items() if text}


def _playbook(entry: CatalogueEntry) -> tuple[Section, ...]:
    return (
        Section(title="What it is", text=entry.intuition),
        Section(title="Why it matters", text=entry.why),
        Section(title="What goes wrong", items=entry.failures),
        Section(title="What to do", items=entry.mitigations),
    )


# The pages of the procedure for a fallen benchmark: its four gates, and the rows of the guide to architecture.
def gate_page(gate: GateDescription) -> Page:
    """Return the page of one gate, with the numbers that it reads."""
    place = PROCEDURE.index(gate)
    before = f"after {PROCEDURE[place - 1].row}, which must pass first" if place else "first of four"
    links = (
        {"looks at": METRICS_OF_GATE[gate.row]}
        if gate.row in METRICS_OF_GATE
        else {"chooses from": tuple(row.row for row in GUIDE)}
    )
    return Page(
        kind="procedure",
        name=gate.name,
        ids=(gate.row,),
        title=gate.question,
        facts={"asked": before, "asked by": "ckaudit triage RUN --benchmark-drop"},
        links=links,
        sections=(Section(title="Why it comes here", text=gate.why), Section(title="What to do", items=gate.do)),
    )


def guide_page(row: GuideRow) -> Page:
    """Return the page of one row of the guide."""
    parts = (
        Section(title="When to think of it", text=row.when),
        Section(title="What to know", text=row.text),
        Section(title="What to try", items=(row.test, ONE_AXIS)),
        Section(title="What others published", items=row.facts),
    )
    return Page(
        kind="advice",
        name=row.name,
        ids=(row.row,),
        title=row.title,
        facts={"given by": "ckaudit triage RUN --benchmark-drop, where SR-1 to SR-3 pass"},
        links={"looks at": row.looks_at} if row.looks_at else {},
        sections=parts,
    )


# The page of a question: its inputs, good and bad answers, and the findings that affect it.
def question_page(question: Question) -> Page:
    """Return the page of a question, with its limits and the docstring sentences on each."""
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
        facts={label: fact for label, fact in facts.items() if fact},
        thresholds=thresholds(question.function, lambda name: sentences_about(name, question.doc)),
        links={label: names for label, names in links.items() if names},
        sections=sections(question.doc),
    )


def _of(bad: BadAnswer) -> str:
    """Return a bad answer described as a finding."""
    means = f"; any finding of {', '.join(bad.means)} makes it bad" if bad.means else ""
    return f"is the finding `{bad.name}`, {bad.severity} ({SEVERITY[bad.severity]}), where no rule's finding says it{means}"


def _names(inputs: tuple[Input, ...]) -> tuple[str, ...]:
    return metric_names(tuple(input_ for input_ in inputs if isinstance(input_, Metric | FactsMarker)))
