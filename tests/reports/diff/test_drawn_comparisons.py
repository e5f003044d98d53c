"""Every format of every sample, letter by letter. `CKAUDIT_GOLDEN=1 pytest tests/reports` rewrites the files; read the diff."""

import json
import os
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import pytest

from ckaudit.contract.schema.diff import Comparison
from ckaudit.reports import FORMATS, render
from ckaudit.reports.escape import UNSAFE
from ckaudit.reports.view import View
from tests.loops import for_each
from tests.reports.diff.sample import SAMPLES

GOLDEN = Path(__file__).parent / "golden"
SUFFIXES = {
    "terminal": "txt",
    "json": "json",
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
    "markdown": "md",
    "brief": "brief.txt",
}
CASES = {f"{name}.{SUFFIXES[kind]}": (name, kind, View()) for name in SAMPLES for kind in FORMATS}
CASES |= {
    f"{name}.{width}.txt": (name, "terminal", View(width=width)) for name in ("worse", "several") for width in (40, 60, 120)
}
CASES |= {
    "worse.ascii.txt": ("worse", "terminal", View(width=80, unicode=False)),
    "worse.colour.txt": ("worse", "terminal", View(width=80, colour=True)),
    "worse.verbose.txt": ("worse", "terminal", View(width=80, verbose=True)),
    "several.verbose.txt": ("several", "terminal", View(width=80, verbose=True)),
}


@for_each("file", CASES)
def test_the_drawing_is_the_one_on_file(file):
    name, kind, view = CASES[file]
    drawn = render(SAMPLES[name](), kind, view)
    path = GOLDEN / file
    if os.environ.get("CKAUDIT_GOLDEN"):
        path.write_text(drawn, encoding="utf-8", newline="\n")
    assert drawn.encode() == path.read_bytes()


def test_no_golden_file_is_left_over():
    assert {path.name for path in GOLDEN.iterdir()} == set(CASES)


@for_each("name", SAMPLES)
@for_each("width", [None, 1, 40, 60, 79, 200])
def test_no_line_is_wider_than_the_screen(name, width):
    drawn = render(SAMPLES[name](), "terminal", View(width=width, unicode=False))
    assert max(map(len, drawn.splitlines())) <= (100 if width is None else min(120, max(40, width)))


def test_names_steer_nothing_in_any_format():
    hostile = SAMPLES["hostile"]()
    texts = {kind: render(hostile, kind, View(verbose=True, unicode=False)) for kind in FORMATS}
    for text in texts.values():
        assert set(UNSAFE.findall(text)) <= {"\n"}
        text.encode()
    json.loads(texts["sarif"])
    ET.fromstring(texts["junit"])
    assert all(re.match(r"::(error|warning|notice) ", line) for line in texts["github"].splitlines())
    assert "<b>" not in texts["markdown"]
    assert "@all" not in texts["markdown"]
    assert texts["terminal"].isascii()


@pytest.mark.parametrize("name", sorted(SAMPLES.keys() - {"hostile"}))
def test_json_is_the_comparison_itself(name):
    made = SAMPLES[name]()
    assert msgspec.json.decode(render(made, "json").encode(), type=Comparison) == made


def test_verbose_leaves_nothing_out():
    made = SAMPLES["worse"]()
    drawn = " ".join(render(made, "terminal", View(verbose=True)).split())
    (pair,) = made.pairs
    statements = [*pair.propagation, *pair.drifts, *pair.answers, *pair.unlike, *pair.gained, *pair.lost]
    assert all(each.message in drawn for each in statements)
    assert "more (-v" not in drawn


def test_what_a_gate_excuses_is_a_note_and_what_counts_an_error():
    lines = render(SAMPLES["gated"](), "github").splitlines()
    assert sum("DIFF001" in line and line.startswith("::error") for line in lines) == 1
    assert sum("DIFF009" in line and line.startswith("::notice") for line in lines) == 1


def test_a_question_without_an_answer_is_skipped_and_never_passed():
    found = ET.fromstring(render(SAMPLES["incomparable"](), "junit"))
    assert {suite.get("name") for suite in found if suite.get("skipped") == "1"} == {"DIFF001", "DIFF009"}
    (failed,) = [suite.get("name") for suite in found if suite.get("failures") == "1"]
    assert failed == "DIFF021"


def test_the_mark_stands_below_the_step_of_the_parting():
    lines = render(SAMPLES["worse"](), "terminal", View(width=104)).splitlines()
    (place,) = [index for index, line in enumerate(lines) if line.strip() == "^ step 500"]
    curve = SAMPLES["worse"]().pairs[0].curves[0]
    assert len(lines[place - 1]) == len(lines[place - 2]) == 4 + len(curve.steps)
    assert curve.steps[lines[place].index("^") - 4] == 500
    above, below = lines[place - 2][4:], lines[place - 1][4:]
    first = next(index for index, (one, other) in enumerate(zip(above, below, strict=True)) if one != other)
    assert curve.steps[first] == 510
    assert below.index("\N{MULTIPLICATION SIGN}") == curve.right.index("NaN")
