"""Rows that sources cite are explained, every one that the program names."""

import re
from pathlib import Path

import ckaudit
from ckaudit.explain import explain, is_known
from ckaudit.explain.catalogue_pages import cited_rows
from ckaudit.explain.docstring import MEANINGS
from ckaudit.lab.specs import experiments
from ckaudit.reports import render
from tests.loops import for_each

SOURCE = Path(ckaudit.__file__).parent
ROW = re.compile(
    r"\b(?:CAD|TRG|SIZ|TRI|MPC|MP|MAP|EXP|SEV[012]|WF|SR|ARC|ME|SAM|PRB|MAN|FX|PAN|DR)-\d+\b|\bD[1-6]\.\d\b|\bM\d\d\b|\bF\d\d?\b"
)
COUNTS = {"CAD": 4, "TRG": 3, "SIZ": 3, "EXP": 12, "SAM": 3, "PRB": 2, "MAN": 5, "PAN": 7, "DR": 4, "FX": 8}


def test_every_row_that_the_program_cites_is_explained():
    files = [path for path in SOURCE.rglob("*.*") if path.suffix in (".py", ".toml")]
    cited = {row for path in files for row in ROW.findall(path.read_text(encoding="utf-8"))}
    assert len(cited) > 150
    assert not sorted(row for row in cited if not is_known(row))


def test_families_are_whole():
    names = [name.partition("-") for name in cited_rows().rows]
    assert [(family, int(number)) for family, _, number in names] == [
        (family, place + 1) for family in dict.fromkeys(each[0] for each in names) for place in range(COUNTS[family])
    ]
    assert set(cited_rows().families) == set(COUNTS)


@for_each("name", list(cited_rows().rows))
def test_a_row_says_what_answers_it(name):
    (page,) = explain([name.lower().replace("-", "_")])
    assert (page.kind, page.name) == ("row", name)
    linked = page.links.get("see", ())
    assert linked or "shown by" in page.facts or page.sections
    assert all(is_known(each) for each in linked)


def test_rows_that_stand_in_the_code_too_say_the_same():
    rows = cited_rows().rows
    assert {each.id: each.title for each in experiments().values()} == {
        name: row.title for name, row in rows.items() if name.startswith("EXP-")
    }


def test_every_kind_of_row_that_is_said_to_be_cited_has_pages():
    examples = [meaning.split(":")[0].split(" to ")[0] for meaning in MEANINGS.values()]
    assert all(is_known(each) for each in examples if re.fullmatch(r"[A-Z]+\d*[-.]?\d+", each))


def test_a_row_is_drawn_in_every_format():
    for kind in ("terminal", "json", "markdown"):
        assert "saturated_attention" in render(explain(["TRI-4"]), kind, kind="Pages")
