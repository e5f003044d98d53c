"""The pages of the playbook: first look, conditions of each severity, order of the work, map, and the rows that sources cite."""

from functools import cache
from pathlib import Path

from msgspec import Struct

from ckaudit.audit.playbook import ACTIONS, WORKFLOW, Condition, Stage, TriageRow
from ckaudit.explain.page import Page, Section
from ckaudit.questions.question import PHASES, MapRow
from ckaudit.rules import rules

ROWS = Path(__file__).with_name("rows.toml")


def look_page(look: TriageRow) -> Page:
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


def map_page(way: MapRow) -> Page:
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


# Rows that sources cite, such as CAD-1 or EXP-3, where nothing else bears that name.
class PlaybookRow(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What stands in the file under a row.

    Attributes:
        title: What the row says.
        text: More of it, and what of ours answers it.
        see: Names that can be explained.
        command: What shows it.
    """

    title: str
    text: str = ""
    see: tuple[str, ...] = ()
    command: str = ""


class PlaybookRows(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file: what each family is about, and each row by its name."""

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
