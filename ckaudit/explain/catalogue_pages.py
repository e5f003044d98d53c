"""The pages of rules, causes and violations, from their docstrings, and of the rows of the playbook."""

import inspect
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.audit.confidence import CauseCandidate, confidences
from ckaudit.audit.playbook import ACTIONS, WORKFLOW, Condition, Stage, TriageRow
from ckaudit.causes.cause import Cause
from ckaudit.causes.shared.links import causes_of, metric_names
from ckaudit.contract.violations import ViolationKind
from ckaudit.explain.docstring import cited, sections, sentences_about, thresholds
from ckaudit.explain.page import Page, Section, Shapes
from ckaudit.metrics import Metric
from ckaudit.metrics.catalogue import entries
from ckaudit.questions.question import PHASES, MapRow
from ckaudit.rules import rules
from ckaudit.rules.rule import Rule

SEVERITY = {"sev0": "stop the run", "sev1": "contain it quickly", "sev2": "investigate", "note": "worth knowing"}

WEIGHTS = ("decisive", "strong", "medium", "weak")

WEIGHED = "added to the log odds for a reason of that strength, taken away for one against"

SHOWN, RULE_SHAPES = (Path(__file__).with_name(f"{name}.toml") for name in ("shown", "rule_shapes"))

ROWS = Path(__file__).with_name("rows.toml")

TITLE = "Runs that show it"


class RecordingsShown(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a rule or a cause in the file that `docs/shown.py` writes.

    Attributes:
        lab: Lab trainings with this label in which the rule finds more than a note, or the cause comes first.
        noted: Lab trainings in which the rule has only a note, if there are no others.
        missed: Lab trainings with this label in which it is not found, if there are no others.
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
    """The contents of the file, by the names of rules and causes."""

    rules: dict[str, RecordingsShown]
    causes: dict[str, RecordingsShown]


class RuleShapes(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a rule in the file.

    Attributes:
        of: The drawn quantity: a metric of the rule, or words.
        good: The healthy series in words.
        bad: The unhealthy series in words.
        good_shape: The healthy series.
        bad_shape: The unhealthy series, on the same axis.
    """

    of: str
    good: str
    bad: str
    good_shape: tuple[float, ...]
    bad_shape: tuple[float, ...]


def rule_page(rule: Rule) -> Page:
    """Return the page of a rule, with its thresholds and the docstring sentences on each."""
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
    [alone] = confidences([CauseCandidate(cause.name, cause.prior, (), is_supported=False, recorded_share=0.0)])
    links = {
        "explains rules": tuple(f"{rule.code} {rule.name}" for rule in cause.explains),
        "may bring with it": tuple(f"{rule.code} {rule.name}" for rule in cause.follows if rule not in cause.explains),
        "weighs if recorded": metric_names(cause.wants),
    }
    more = inspect.cleandoc(cause.function.__doc__ or "").partition("\n")[2].strip()
    about = f"## About it\n{more}" if more else ""
    return Page(
        kind="cause",
        name=cause.name,
        title=cause.title,
        facts={"before any evidence": f"{alone:.0%} ({cause.prior:+g} in log odds)"},
        thresholds=thresholds(cause.function, lambda name: WEIGHED if name in WEIGHTS else sentences_about(name, about)),
        links={label: names for label, names in links.items() if names},
        sections=(
            *sections(about),
            Section(title="First knob", text=cause.knob),
            Section(title="Where to look", text=cause.inspect),
            Section(title="Runbook", text=cause.runbook),
            *section_on_cause(cause.name),
        ),
    )


def violation_page(kind: ViolationKind) -> Page:
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


# Healthy and unhealthy shapes: those of the rule's first metric, or a pair of series of the rule's own.
@cache
def drawn_shapes() -> dict[str, RuleShapes]:
    """Return the shapes of rules that have their own, by the name of the rule.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(RULE_SHAPES.read_text(encoding="utf-8")), dict[str, RuleShapes])


def shapes_of(rule: Rule) -> Shapes | None:
    """Return the healthy and unhealthy shapes of a rule; None for a plugin's rule on a metric without drawn shapes."""
    if pair := drawn_shapes().get(rule.name):
        return Shapes(of=pair.of, good=pair.good, bad=pair.bad, good_values=pair.good_shape, bad_values=pair.bad_shape)
    first = next((metric for metric in (*rule.needs, *rule.wants) if isinstance(metric, Metric)), None)
    entry = entries().get(first.name) if first else None
    if first is None or entry is None:
        return None
    return Shapes(of=first.name, good=entry.good, bad=entry.bad, good_values=entry.good_shape, bad_values=entry.bad_shape)


# Examples of a rule or a cause: lab trainings, recorded runs and logs in which an audit found it.
@cache
def recordings_shown() -> AllShown:
    """Return the recordings in which rules and causes can be seen.

    Raises:
        msgspec.ValidationError: If the file has a field too many, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(SHOWN.read_text(encoding="utf-8")), AllShown)


def section_on_rule(name: str) -> tuple[Section, ...]:
    """Return the section on where a rule's problem can be seen; empty for the rule of a plugin."""
    return _section(
        recordings_shown().rules.get(name), f"tests/rules/{name}.toml", "finds it", "might show it by their label, and do not"
    )


def section_on_cause(name: str) -> tuple[Section, ...]:
    """Return the section on where a cause can be seen; empty for the cause of a plugin."""
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
    """Return the lab trainings that show it, show only a note, or do not show it; or that there are none."""
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


# The playbook: first look, conditions of each severity, order of work, map, and the rows that sources cite.
def first_look_page(look: TriageRow) -> Page:
    """Return the page of one row of the first-look table."""
    return Page(
        kind="advice",
        name=look.name,
        ids=(look.row,),
        title=look.seen,
        facts={"said by": "ckaudit triage RUN"},
        links={"seen by rules": look.rules, "weighed causes": look.causes, "look on with": look.metrics},
        sections=(
            Section(title="What lies behind it", text=look.behind),
            Section(title="What to change first", text=look.knob),
            Section(title="Where to look", text=look.inspect),
        ),
    )


def condition_page(condition: Condition) -> Page:
    """Return the page of one condition, with the actions for its severity."""
    codes = {rule.name: code for code, rule in rules().items()}
    action = ACTIONS[condition.severity]
    return Page(
        kind="advice",
        name=condition.name,
        ids=(condition.row,),
        title=condition.title,
        facts={"severity": condition.severity, "said by": "ckaudit triage RUN"},
        links={"judged by rules": tuple(f"{codes[name]} {name}" for name in condition.rules)},
        sections=(Section(title="What to do", text=f"{action[0].upper()}{action[1:]}."),),
    )


def stage_page(stage: Stage) -> Page:
    """Return the page of one stage of the work."""
    place = WORKFLOW.index(stage)
    return Page(
        kind="procedure",
        name=stage.name,
        ids=(stage.row,),
        title=stage.title,
        facts={
            "comes": f"after {WORKFLOW[place - 1].row}" if place else "first",
            "said by": "ckaudit triage RUN, under What to do now",
        },
        sections=(
            Section(title="Why it comes here", text=stage.why),
            Section(title="What to do", items=stage.do),
            Section(title="With", items=stage.commands),
        ),
    )


def map_page(way: MapRow) -> Page:
    """Return the page of one row of the map from questions to tools."""
    shown = way.command.format(run="RUN", event="last") or f"ckaudit metrics RUN {' '.join(way.metrics)}"
    numbers = ",".join(map(str, way.phases))
    return Page(
        kind="advice",
        name=way.id,
        title=way.question,
        facts={
            "phase": "; ".join(f"{number}: {PHASES[number]}" for number in way.phases),
            "shown by": shown,
            "asked by": f"ckaudit triage RUN --questions {numbers}",
        },
        links={"look on with": way.metrics} if way.metrics else {},
    )


# Rows that sources cite, such as CAD-1 or EXP-3, if nothing else has that name.
class PlaybookRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table of a row in the file.

    Attributes:
        title: Title of the row.
        text: Details, and the parts of ckaudit that answer it.
        see: Related names that `explain` knows.
        command: Command that shows it.
    """

    title: str
    text: str = ""
    see: tuple[str, ...] = ()
    command: str = ""


class PlaybookRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: the topic of each family, and each row by its name."""

    families: dict[str, str]
    rows: dict[str, PlaybookRow]


@cache
def cited_rows() -> PlaybookRows:
    """Return all rows.

    Raises:
        msgspec.ValidationError: If the file has a field too many, too few, or of another type.
    """
    import tomllib

    import msgspec

    return msgspec.convert(tomllib.loads(ROWS.read_text(encoding="utf-8")), PlaybookRows)


def row_page(name: str) -> Page:
    """Return the page of a row, with the names that answer it and the command that shows it."""
    row = cited_rows().rows[name]
    family, _, number = name.partition("-")
    facts = {"row": f"{number} of {cited_rows().families[family]}"} | ({"shown by": row.command} if row.command else {})
    return Page(
        kind="row",
        name=name,
        title=row.title,
        facts=facts,
        links={"see": row.see} if row.see else {},
        sections=(Section(title="What it says", text=row.text),) if row.text else (),
    )
