"""The pages of rules, causes and violations: from their catalogues and docstrings."""

import inspect
import math

from ckaudit.causes.cause import Cause
from ckaudit.causes.links import causes_of, metric_names
from ckaudit.contract.violations import Kind
from ckaudit.explain.cited import cited
from ckaudit.explain.docstring import sections, sentences_about, thresholds
from ckaudit.explain.page import Page, Section
from ckaudit.explain.rule_shapes import shapes_of
from ckaudit.explain.shown import of_cause, of_rule
from ckaudit.rules.rule import Rule

SEVERITY = {"sev0": "stop the run", "sev1": "contain it quickly", "sev2": "investigate", "note": "worth knowing"}

WEIGHTS = ("decisive", "strong", "medium", "weak")
WEIGHED = "added to the log odds for a reason of that strength, taken away for one against"


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
        links={label: found for label, found in links.items() if found},
        sections=(*sections(rule.doc), *of_rule(rule.name)),
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
        links={label: found for label, found in links.items() if found},
        sections=(
            *about,
            Section(title="First knob", text=cause.knob),
            Section(title="Where to look", text=cause.inspect),
            Section(title="Runbook", text=cause.runbook),
            *of_cause(cause.name),
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
