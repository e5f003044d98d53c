"""The pages of rules, causes and violations: from their catalogues and docstrings."""

import inspect
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.causes.cause import Cause
from ckaudit.causes.shared.links import causes_of, metric_names
from ckaudit.contract.violations import Kind
from ckaudit.explain.docstring import cited, sections, sentences_about, thresholds
from ckaudit.explain.page import Page, Section, Shapes
from ckaudit.metrics import Metric
from ckaudit.metrics.catalogue import entries
from ckaudit.rules.rule import Rule

SEVERITY = {"sev0": "stop the run", "sev1": "contain it quickly", "sev2": "investigate", "note": "worth knowing"}

WEIGHTS = ("decisive", "strong", "medium", "weak")

WEIGHED = "added to the log odds for a reason of that strength, taken away for one against"

SHOWN, RULE_SHAPES = (Path(__file__).with_name(f"{name}.toml") for name in ("shown", "rule_shapes"))

TITLE = "Runs that show it"


class RecordingsShown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under the name of a rule or a cause; `docs/shown.py` writes it.

    Attributes:
        lab: Trainings of the lab, of whose label it is, in which the rule finds something graver than a note, or the cause
            comes first.
        noted: Those in which the rule has a note, where there are no others.
        missed: Those of whose label it is and in which it is not found, where there are no others.
        runs: Folders of recorded runs in the repository.
        logs: Logs of real trainings in the repository.
        case: The first case of its file in `tests/` that shows it.
    """

    lab: tuple[str, ...] = ()
    noted: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    logs: tuple[str, ...] = ()
    case: str = ""


class AllShown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file, by the names of rules and of causes."""

    rules: dict[str, RecordingsShown]
    causes: dict[str, RecordingsShown]


class RuleShapes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under the name of a rule.

    Attributes:
        of: What is drawn: a metric of the rule, or words.
        good: The healthy series in words.
        bad: The ill one.
        good_shape: The healthy series.
        bad_shape: The ill one, on the same axis.
    """

    of: str
    good: str
    bad: str
    good_shape: tuple[float, ...]
    bad_shape: tuple[float, ...]


def rule_page(rule: Rule) -> Page:
    """Return the page of a rule, with its thresholds and the sentences of its docstring that speak of each."""
    facts = {"severity": f"{rule.severity} at most: {SEVERITY[rule.severity]}"}
    if rule.unit != "1":
        facts["unit"] = rule.unit
    facts["looks back"] = "to the start of the run" if rule.memory is None else f"{rule.memory} points"
    if meanings := cited([rule.doc]):
        facts["cited"] = meanings
    links = {
        "needs": metric_names(rule.needs),
        "looks at if recorded": metric_names(rule.wants),
        "explained by causes": tuple(cause.name for cause in causes_of(rule)),
    }
    return Page(
        kind="rule",
        name=rule.name,
        ids=(rule.code,),
        title=rule.title,
        facts=facts,
        thresholds=thresholds(rule.function, lambda name: sentences_about(name, rule.doc)),
        links={label: names for label, names in links.items() if names},
        sections=(*sections(rule.doc), *section_on_rule(rule.name)),
        shapes=shapes_of(rule),
    )


def cause_page(cause: Cause) -> Page:
    """Return the page of a cause, with the weights of its evidence."""
    prior = 1 / (1 + math.exp(-cause.prior))
    links = {
        "explains rules": tuple(f"{rule.code} {rule.name}" for rule in cause.explains),
        "may bring with it": tuple(f"{rule.code} {rule.name}" for rule in cause.follows if rule not in cause.explains),
        "weighs if recorded": metric_names(cause.wants),
    }
    more = " ".join(inspect.cleandoc(cause.function.__doc__ or "").partition("\n")[2].split())
    about = (Section(title="About it", text=more),) if more else ()
    return Page(
        kind="cause",
        name=cause.name,
        title=cause.title,
        facts={"before any evidence": f"{prior:.0%} ({cause.prior:+g} in log odds)"},
        thresholds=thresholds(cause.function, lambda name: WEIGHED if name in WEIGHTS else sentences_about(name, more)),
        links={label: names for label, names in links.items() if names},
        sections=(
            *about,
            Section(title="First knob", text=cause.knob),
            Section(title="Where to look", text=cause.inspect),
            Section(title="Runbook", text=cause.runbook),
            *section_on_cause(cause.name),
        ),
    )


def violation_page(kind: Kind) -> Page:
    """Return the page of a kind of violation."""
    commands = " and ".join(f"ckaudit {command}" for command in kind.found_by)
    return Page(
        kind="violation",
        name=kind.name,
        ids=(kind.code,),
        title=kind.title,
        facts={"severity": f"{kind.severity}: {SEVERITY[kind.severity]}", "found by": commands},
        sections=(Section(title="What to do", text=kind.help),),
    )


# How an illness looks beside health: as its rule's first metric does, or by a pair of series of its own.
@cache
def drawn_shapes() -> dict[str, RuleShapes]:
    """Return the pairs of series of rules that have their own, by the name of the rule.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(RULE_SHAPES.read_text(encoding="utf-8")), dict[str, RuleShapes])


def shapes_of(rule: Rule) -> Shapes | None:
    """Return how a rule's illness looks, or None for the rule of a plugin on a metric that nobody has drawn."""
    if pair := drawn_shapes().get(rule.name):
        return Shapes(of=pair.of, good=pair.good, bad=pair.bad, good_values=pair.good_shape, bad_values=pair.bad_shape)
    first = next((metric for metric in (*rule.needs, *rule.wants) if isinstance(metric, Metric)), None)
    entry = entries().get(first.name) if first else None
    if first is None or entry is None:
        return None
    return Shapes(of=first.name, good=entry.good, bad=entry.bad, good_values=entry.good_shape, bad_values=entry.bad_shape)


# Where a rule or a cause can be seen: trainings of the lab, recorded runs and logs in which an audit really found it.
@cache
def recordings_shown() -> AllShown:
    """Return what is known of where rules and causes can be seen.

    Raises:
        msgspec.ValidationError: If the file has a field too many, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(SHOWN.read_text(encoding="utf-8")), AllShown)


def section_on_rule(name: str) -> tuple[Section, ...]:
    """Return the section on where a rule's illness can be seen; none for the rule of a plugin."""
    return _section(
        recordings_shown().rules.get(name), f"tests/rules/{name}.toml", "finds it", "might show it by their label, and do not"
    )


def section_on_cause(name: str) -> tuple[Section, ...]:
    """Return the section on where a cause can be seen; none for the cause of a plugin."""
    return _section(
        recordings_shown().causes.get(name), f"tests/causes/{name}.toml", "names it first", "have it, but not named first"
    )


def _section(shown_in: RecordingsShown | None, cases: str, does: str, misses: str) -> tuple[Section, ...]:
    if shown_in is None:
        return ()
    items = [_lab(shown_in, misses)]
    items += [f"Recorded: {_listed(shown_in.runs)}."] if shown_in.runs else []
    items += [f"Logs of real trainings: {_listed(shown_in.logs)}."] if shown_in.logs else []
    if shown_in.case and not (shown_in.lab or shown_in.runs or shown_in.logs):
        items.append(f'The audit {does} in the series "{shown_in.case}" of `{cases}`.')
    return (Section(title=TITLE, items=tuple(items)),)


def _lab(shown_in: RecordingsShown, misses: str) -> str:
    """Return what the lab has: trainings that show it, or only a note of it, or do not, or none."""
    if shown_in.lab:
        first, *others = shown_in.lab
        return f"`ckaudit lab run {first} --out run/`" + (f"; also {_listed(others)}." if others else ".")
    if shown_in.noted:
        return f"In the lab nothing more than a note: {_listed(shown_in.noted)}."
    if shown_in.missed:
        return f"Not shown in the lab; these {misses}: {_listed(shown_in.missed)}."
    return "Not shown in the lab: no training there is made to have it."


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
