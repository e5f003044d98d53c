"""`docs/coverage.md`: every row of the playbook, what answers it, and where it is shown: `python -m tests.inventory.paper`."""

from collections.abc import Iterator
from typing import Any

from tests.inventory.sources import HERE, ids, table

INTRODUCTION = """# Coverage of the playbook

Written by `python -m tests.inventory.paper` from the tables in `tests/inventory/`, whose tests feed the data named here to
ckaudit and compare what it says. `run/` and `lab/` are recorded trainings in `fixtures/`, `real/` public logs; the rest are small
cases, by file and name. `ckaudit explain ROW` tells more of any row with an id.
"""
NAMED = """## Rows with an id

| row | what it is about | answered by | fires on | silent on |
|---|---|---|---|---|"""
UNNAMED = """## Rows that got an id here

DSH are panels and checklists, IMP the tables of importance, CPL couplings of several numbers, VIS what can be seen at all.

| row | what it is about | numbers | rules and causes | shown by |
|---|---|---|---|---|"""
PROCEDURES = {
    "CAD": "`ckaudit.contract.cadence`, FILE001",
    "TRG": "`ckaudit.recorder.loop.triggers`",
    "MAP": "`ckaudit triage RUN --questions`",
    "WF": "*What to do now* of `ckaudit triage RUN`",
    "SR": "`ckaudit triage RUN --benchmark-drop`",
    "ARC": "`ckaudit triage RUN --benchmark-drop`, behind SR-3",
    "ME": "`ckaudit triage RUN --benchmark-drop`, behind SR-3",
}
TEST = "`tests/inventory/test_procedures.py`"


def document() -> str:
    """Return the whole of `docs/coverage.md`."""
    rows = [*map(_line, _named()), "", UNNAMED, *map(_line, _unnamed()), "", *_open()]
    return "\n".join([INTRODUCTION, NAMED, *rows]) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _named() -> Iterator[tuple[str, ...]]:
    judged = table("first_look") | table("policy")
    asked = {row: words for phase in table("matrix").values() for row, words in phase.items()}
    for row, about in ids().items():
        if row in judged:
            yield (row, about, *_judged(judged[row]))
        elif row in asked:
            words = asked[row]
            ill = [f"{word}: {source}" for word in ("bad", "watch") for source in words.get(word, ())]
            yield row, about, f"question {row}", _listed(ill), _listed(words["good"])
        else:
            yield row, about, PROCEDURES[row.partition("-")[0]], TEST, TEST


def _judged(spec: dict[str, Any]) -> tuple[str, str, str]:
    """Return what answers a row, what it fires on and what it is silent on."""
    cause = [f"cause {spec['cause']}"] if "cause" in spec else []
    parts = [*spec["rules"].values(), *([spec] if cause else [])]
    ill, well = ([source for part in parts for source in part[kind]] for kind in ("ill", "well"))
    return ", ".join([*spec["rules"], *cause]), _listed(ill), _listed(well)


def _listed(sources: list[str]) -> str:
    return "<br>".join(dict.fromkeys(source.replace("|", "/") for source in sources))


def _unnamed() -> Iterator[tuple[str, ...]]:
    couplings = table("couplings")
    cases: dict[str, list[str]] = {}
    for case in (*couplings["case"], *couplings["known"]):
        cases.setdefault(case["row"], []).append(case.get("source") or f"couplings: {case['name']}")
    for row, each in table("unnamed").items():
        shown = [
            *([each["run"]] if "run" in each else []),
            *each.get("tests", ()),
            *cases.get(row, ()),
            *each.get("commands", ()),
        ]
        numbers = [*each.get("metrics", ()), *(f"({each[kind]})" for kind in ("scale", "stage") if kind in each)]
        judged = [*each.get("rules", ()), *each.get("causes", ())]
        missing = [f"**open:** {each['open']}"] if "open" in each else []
        yield row, each["about"], ", ".join(numbers), ", ".join(judged), _listed([*shown, *missing])


def _open() -> Iterator[str]:
    """Yield the rows that nothing answers yet."""
    yield "## What is open\n"
    yield from (f"- {row}, {each['about']}: {each['open']}" for row, each in table("unnamed").items() if "open" in each)


if __name__ == "__main__":
    (HERE.parents[1] / "docs" / "coverage.md").write_text(document(), encoding="utf-8")
