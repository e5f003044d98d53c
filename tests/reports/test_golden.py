"""Every format of every sample, letter by letter. `CKAUDIT_GOLDEN=1 pytest tests/reports` rewrites the files; read the diff."""

import os
from pathlib import Path

from ckaudit.reports import FORMATS, render
from ckaudit.reports.view import View
from tests.loops import for_each
from tests.reports.interviewed import interviewed
from tests.reports.sample import SAMPLES as REPORTS

GOLDEN = Path(__file__).parents[1] / "golden"
SUFFIXES = {
    "terminal": "txt",
    "json": "json",
    "sarif": "sarif",
    "junit": "xml",
    "github": "github.txt",
    "markdown": "md",
    "brief": "brief.txt",
}
SAMPLES = {**REPORTS, "interviewed": interviewed}

CASES = {f"{name}.{SUFFIXES[kind]}": (name, kind, View()) for name in SAMPLES for kind in FORMATS}
CASES |= {f"ill.{width}.txt": ("ill", "terminal", View(width=width)) for width in (60, 80, 120)}
CASES |= {f"interviewed.{width}.txt": ("interviewed", "terminal", View(width=width)) for width in (60, 110)}
CASES |= {
    "interviewed.ascii.txt": ("interviewed", "terminal", View(width=80, unicode=False)),
    "interviewed.colour.txt": ("interviewed", "terminal", View(width=80, colour=True)),
    "interviewed.verbose.txt": ("interviewed", "terminal", View(width=80, verbose=True)),
    "ill.ascii.txt": ("ill", "terminal", View(width=80, unicode=False)),
    "ill.colour.txt": ("ill", "terminal", View(width=80, colour=True)),
    "ill.verbose.txt": ("ill", "terminal", View(width=80, verbose=True)),
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
