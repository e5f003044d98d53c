"""Whatever a file may put into a report, every format stays well formed and harmless."""

import json
import re
import xml.etree.ElementTree as ET

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from ckaudit.contract.schema.report import Chart, Finding
from ckaudit.reports import FORMATS, render
from ckaudit.reports.escape import UNSAFE
from ckaudit.reports.view import View
from tests.reports.sample import ill

ANYTHING = st.text(st.characters(), max_size=30) | st.sampled_from(
    ["", "\x1b[2J", "]]>", "%0A::error::x", "<!--", "a\u202eb", "\ud83d"]
)
VALUES = st.none() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(["NaN", "Infinity", "-Infinity"])


@st.composite
def reports(draw):
    words = st.none() | ANYTHING
    finding = Finding(
        code="A001",
        name="a",
        severity=draw(st.sampled_from(["sev0", "sev2", "note"])),
        message=draw(ANYTHING),
        where=draw(words),
        file=draw(words),
        pointer=draw(words),
        expected=draw(words),
        found=draw(words),
        help=draw(words),
        also=draw(st.lists(ANYTHING, max_size=5)),
        line=draw(st.none() | st.integers(1, 10**9)),
    )
    values = draw(st.lists(VALUES, max_size=150))
    charts = [
        Chart(name=name, title=draw(ANYTHING), unit="1", labels=[draw(ANYTHING)] * len(values), values=values)
        for name in ("loss", "gradient_waterfall")
    ]
    command = draw(st.sampled_from(["validate", "triage"]))
    return msgspec.structs.replace(
        ill(),
        command=command,
        subject=draw(ANYTHING),
        verdict=draw(ANYTHING),
        findings=[finding] * draw(st.integers(0, 30)),
        charts=charts,
        state={draw(ANYTHING): 1e300},
        notes=draw(st.lists(ANYTHING, max_size=3)),
    )


@settings(max_examples=60, deadline=None)
@given(report=reports(), width=st.none() | st.integers(1, 200), unicode=st.booleans(), base=st.sampled_from(["", "runs/a"]))
def test_every_format_is_well_formed_and_harmless(report, width, unicode, base):
    view = View(width=width, unicode=unicode, base=base)
    texts = {kind: render(report, kind, view) for kind in FORMATS}
    for text in texts.values():
        assert set(UNSAFE.findall(text)) <= {"\n"}
        text.encode()
    json.loads(texts["json"])
    json.loads(texts["sarif"])
    ET.fromstring(texts["junit"])
    assert all(re.match(r"::(error|warning|notice) ", line) for line in texts["github"].splitlines())
    assert texts["terminal"].isascii() or unicode
