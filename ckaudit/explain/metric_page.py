"""The page of a metric: definition from its docstring, playbook from the catalogue, what reads it derived."""

from msgspec.structs import asdict

from ckaudit.audit.remedies import lines_for
from ckaudit.causes.links import causes_reading, rules_reading
from ckaudit.explain.cited import cited
from ckaudit.explain.docstring import Documentation, documentation, thresholds
from ckaudit.explain.page import Formula, Page, Section, Shapes
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import Category, Entry, categories, entries, entry_of


def metric_page(name: str) -> Page:
    """Return the page of a metric, with the playbook of the entry that tells about it.

    What holds for the entry's own number alone, such as how it is computed, its alert and its shapes, stands on that page only.
    """
    metric, owner = metrics()[name], entry_of(name)
    told = documentation(metric.function)
    own, entry = entries().get(name), entries()[owner] if owner else None
    covers = own.covers if own else ()
    return Page(
        kind="metric",
        name=name,
        ids=own.rows if own else (),
        also_called=own.also_called if own else (),
        title=metric.title,
        formulas=_formulas(told, own),
        facts=_facts(metric, told, entry, own),
        importance={"scale": asdict(own.scale), "stage": asdict(own.stage)} if own else {},
        thresholds=thresholds(metric.function, lambda each: told.arguments.get(each, "")),
        links=_links((name, *covers)) | ({"told together with": covers} if covers else {}),
        line="\n".join(lines_for(entries()[owner].elsewhere.get(name, owner))) if owner else "",
        sections=_playbook(entry) if entry else (),
        belongs_to=owner if owner and not own else "",
        shapes=_shapes(own) if own else None,
    )


def category_of(entry: Entry) -> Category:
    """Return the category that an entry stands in."""
    return next(category for category in categories() if entry in category.entries.values())


def _formulas(told: Documentation, entry: Entry | None) -> tuple[Formula, ...]:
    own = tuple(Formula(tex=tex) for tex in told.formulas)
    return own + tuple(Formula(row=row, tex=tex) for row, tex in (entry.formulas if entry else {}).items())


def _facts(metric: Metric, told: Documentation, entry: Entry | None, own: Entry | None) -> dict[str, str]:
    """Return the short facts in the order to show them; `own` is the entry where it is the metric's own."""
    facts = {"category": category_of(entry).name} if entry else {}
    facts |= {"unit": "a pure number" if metric.unit == "1" else metric.unit, "shape": told.details.removeprefix("Shape ")}
    facts |= {"computed": own.computed} if own else {}
    facts |= {"reads": ", ".join(metric.reads), "source": metric.source}
    if own:
        facts |= {"typical": own.typical, "sampling": own.sampling, "alert": own.alert, "alert from": own.alert_source}
    facts |= {"recorded by": entry.record} if entry else {}
    facts |= {"cited": cited([metric.source, own.alert_source if own else ""])}
    return {label: text for label, text in facts.items() if text}


def _links(names: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    links = {
        "read by rules": tuple(f"{rule.code} {rule.name}" for rule in rules_reading(names)),
        "weighed by causes": tuple(cause.name for cause in causes_reading(names)),
    }
    return {label: found for label, found in links.items() if found}


def _playbook(entry: Entry) -> tuple[Section, ...]:
    return (
        Section(title="What it is", text=entry.intuition),
        Section(title="Why it matters", text=entry.why),
        Section(title="What goes wrong", items=entry.failures),
        Section(title="What to do", items=entry.mitigations),
    )


def _shapes(entry: Entry) -> Shapes:
    return Shapes(good=entry.good, bad=entry.bad, good_values=entry.good_shape, bad_values=entry.bad_shape)
