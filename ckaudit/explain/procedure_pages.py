"""The pages of the procedure for a benchmark that fell: its four gates, and the rows of the guide to architecture."""

from ckaudit.audit.drop.gates import DATA, INTERNAL
from ckaudit.audit.drop.guide import GUIDE, ONE_AXIS, Row
from ckaudit.audit.drop.procedure import PROCEDURE, Asked
from ckaudit.explain.page import Page, Section

LOOKS_AT = {
    "SR-1": ("eval_artifact_hash", "val_loss"),
    "SR-2": tuple(each.metric.name for each in DATA),
    "SR-3": (*(each.metric.name for each in INTERNAL), "nan_inf_events"),
}


def gate_page(gate: Asked) -> Page:
    """Return the page of one gate, with the numbers that it looks at."""
    place = PROCEDURE.index(gate)
    before = f"after {PROCEDURE[place - 1].row}, which must pass first" if place else "first of four"
    links = {"looks at": LOOKS_AT[gate.row]} if gate.row in LOOKS_AT else {"chooses from": tuple(row.row for row in GUIDE)}
    return Page(
        kind="procedure",
        name=gate.name,
        ids=(gate.row,),
        title=gate.question,
        facts={"asked": before, "asked by": "ckaudit triage RUN --benchmark-drop"},
        links=links,
        sections=(Section(title="Why it comes here", text=gate.why), Section(title="What to do", items=gate.do)),
    )


def guide_page(row: Row) -> Page:
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
