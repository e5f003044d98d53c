"""The page of a metric: definition from its docstring, playbook from the catalogue, what reads it derived."""

from msgspec.structs import asdict

from ckaudit.causes.links import causes_reading, rules_reading
from ckaudit.explain.docstring import Documentation, documentation, thresholds
from ckaudit.explain.page import Formula, Page, Section, Shapes
from ckaudit.metrics import Metric, metrics
from ckaudit.metrics.catalogue import Category, Entry, categories, entries, entry_of

NOTHING = Documentation((), "", {})


def metric_page(name: str) -> Page:
    """Return the page of a metric, or of an entry of the catalogue that no metric computes yet."""
    metric, owner = metrics().get(name), entry_of(name)
    entry = entries()[owner] if owner else None
    told = documentation(metric.function) if metric else NOTHING
    mine = owner == name and entry is not None
    covers = entry.covers if mine and entry else ()
    return Page(
        kind="metric",
        name=name,
        ids=entry.rows if mine and entry else (),
        also_called=entry.also_called if mine and entry else (),
        title=title(name),
        formulas=_formulas(told, entry if mine else None),
        facts=_facts(metric, told, entry) | ({} if mine or not owner else {"playbook of": owner}),
        importance={"scale": asdict(entry.scale), "stage": asdict(entry.stage)} if entry else {},
        thresholds=thresholds(metric.function, lambda each: told.arguments.get(each, "")) if metric else (),
        links=_links((name, *covers)) | ({"told together with": covers} if covers else {}),
        sections=_playbook(entry) if entry else (),
        shapes=_shapes(entry) if entry else None,
    )


def title(name: str) -> str:
    """Return one sentence that says what a metric is; of an entry without a metric, how it is made."""
    metric = metrics().get(name)
    return metric.title if metric else entries()[name].computed


def category_of(entry: Entry) -> Category:
    """Return the category that an entry stands in."""
    return next(category for category in categories() if entry in category.entries.values())


def _formulas(told: Documentation, entry: Entry | None) -> tuple[Formula, ...]:
    own = tuple(Formula(tex=tex) for tex in told.formulas)
    return own + tuple(Formula(row=row, tex=tex) for row, tex in (entry.formulas if entry else {}).items())


def _facts(metric: Metric | None, told: Documentation, entry: Entry | None) -> dict[str, str]:
    """Return the short facts in the order to show them."""
    facts: dict[str, str] = {}
    if entry:
        facts["category"] = category_of(entry).name
    if metric:
        facts |= {"unit": "a pure number" if metric.unit == "1" else metric.unit, "shape": told.details.removeprefix("Shape ")}
    if entry:
        facts["computed"] = entry.computed
    if metric:
        facts |= {"reads": ", ".join(metric.reads), "source": metric.source}
    if entry:
        facts |= {
            "typical": entry.typical,
            "sampling": entry.sampling,
            "alert": entry.alert,
            "alert from": entry.alert_source,
            "recorded by": entry.record,
        }
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
