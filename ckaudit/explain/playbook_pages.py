"""The pages of the playbook's advice: the first look, the conditions of each severity, the order of the work, the map."""

from ckaudit.audit.playbook import ACTIONS, WORKFLOW, Condition, Look, Stage
from ckaudit.explain.page import Page, Section
from ckaudit.questions.question import PHASES, Way
from ckaudit.rules import rules


def look_page(look: Look) -> Page:
    """Return the page of one row of the table for a first look."""
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
    """Return the page of one condition, with what its severity asks for."""
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


def way_page(way: Way) -> Page:
    """Return the page of one row of the map from questions to what shows them."""
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
