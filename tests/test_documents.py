"""Documents that are written by a script are those that the script writes."""

import importlib.util
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from ckaudit.causes import causes
from ckaudit.causes.shared.links import causes_of
from ckaudit.contract.schema.scalars import NAMES
from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.questions import questions
from ckaudit.questions.readiness import COHERENCE, CONSISTENCY, FLUENCY, FOLLOWING, FORMAT, INSTRUCTION
from ckaudit.rules import rules
from tests.in_process import SCREEN, ckaudit

DOCS = Path(__file__).parents[1] / "docs"


@cache
def written(name):
    """Return a document as docs/make.py writes it."""
    return runpy.run_path(str(DOCS / "make.py"))["DOCUMENTS"][name]()


@pytest.mark.parametrize("name", ["rules.md", "causes.md"])
def test_rules_and_causes_on_paper_have_all_that_is_asked_of_them(name):
    text = written(name)
    parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    of_rules = name == "rules.md"
    assert list(found) == ([rule.name for rule in rules().values()] if of_rules else list(causes()))
    assert re.findall(r"\]\(#(\w+)\)", parts[0]) == list(found)
    shared = ("**Runs that show it**", "| before any evidence |", "**First knob.**", "**Where to look.**", "**Runbook.**")
    wanted = (shared[0], "**What it checks.**", "**Why it matters.**", "**False alarms.**", "| severity |", "good: ", "bad: ")
    for page in found.values():
        assert all(part in page for part in (wanted if of_rules else shared))
    for each in rules().values() if of_rules else causes().values():
        for limit in getattr(each, "thresholds", ()):
            assert f"| `{limit}` | " in found[each.name]
        for linked in causes_of(each) if of_rules else (*each.explains, *each.follows):
            assert linked.name in found[each.name]


def test_screens_and_pictures_are_what_the_commands_print(monkeypatch):
    def run_here(words, *, cwd, env, **_):
        return ckaudit(*words[3:], cwd=cwd, **{name: env[name] for name in SCREEN if name in env})

    spec = importlib.util.spec_from_file_location("docs_screens", DOCS / "screens.py")
    screens = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(screens)
    monkeypatch.setattr(screens.subprocess, "run", run_here)
    texts = [document.read_text(encoding="utf-8") for document in screens.DOCUMENTS]
    assert sum(len(screens.SCREEN.findall(text)) for text in texts) == 6
    assert [screens.renewed(text) for text in texts] == texts, "run python docs/screens.py"
    drawn = screens.pictures()
    assert drawn == {path: path.read_text(encoding="utf-8") for path in drawn}, "run python docs/screens.py"
    shown = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert all(str(path.relative_to(DOCS.parent)) in shown for path in drawn)
    seen = "".join(re.findall(r">([^<]+)</text>", next(iter(drawn.values())))).replace("&#160;", " ")
    assert "SEV2" in seen
    assert "dead_path explains GRAD003" in seen


def test_the_documents_are_written_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import runpy; rules = runpy.run_path('docs/make.py')['DOCUMENTS']['rules.md']()"
    )
    program = [sys.executable, "-c", f"{code}; sys.stdout.buffer.write(rules.encode())"]
    assert subprocess.check_output(program, cwd=DOCS.parent).decode() == written("rules.md")


def test_the_questions_on_paper_hold_every_question_and_every_name_that_is_read():
    text = written("questions.md")
    assert re.findall(r"^### (\S+)$", text, flags=re.MULTILINE) == list(questions())
    for name in (COHERENCE, FLUENCY, FOLLOWING, FORMAT, CONSISTENCY):
        assert f"`microbench_score/{name}`" in text
    assert f"`slice_val_loss/{INSTRUCTION}`" in text


def test_the_catalogue_on_paper_holds_every_metric_under_its_own_heading():
    text = written("metrics.md")
    headings = re.findall(r"^####? (\w+)$", text, flags=re.MULTILINE)
    assert sorted(headings) == sorted(set(entries()) | set(metrics()))
    assert set(re.findall(r"\]\(#(\w+)\)", text)) == set(entries())


def test_the_drawing_of_the_architecture_is_that_of_the_imports():
    spec = importlib.util.spec_from_file_location("docs_drawing", DOCS / "drawing.py")
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    text = drawing.PAGE.read_text(encoding="utf-8")
    assert drawing.renewed(text) == text, "run python docs/drawing.py"
    assert len(drawing.BLOCK.findall(text)) == 2


def test_the_files_that_the_architecture_names_are_there():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(?:ckaudit/)?([a-z_]+(?:/[a-z_]+)*(?:\.py|/))`", text)
    root = DOCS.parent / "ckaudit"
    rooms = ("", "tests/", "fixtures/", "validate/")
    missing = [
        name for name in named if not any((root / room / name).exists() or (root.parent / name).exists() for room in rooms)
    ]
    assert len(named) > 40
    assert not missing


def test_the_glossary_is_sorted_and_each_word_has_its_place():
    rows = re.findall(
        r"^\| ([^|]+) \| ([^|]+\.) \| `([^`]+)` \|$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    terms = [term for term, _, _ in rows]
    assert 40 <= len(terms) <= 60
    assert terms == sorted(set(terms))
    assert not [place for _, _, place in rows if not (DOCS.parent / place).is_file()]


def test_every_decision_stands_in_the_index_under_its_title():
    index = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[(\d{4})\]\((\S+)\) (.+)$", index, flags=re.MULTILINE)
    titles = [(path, path.read_text(encoding="utf-8").partition("\n")[0]) for path in sorted((DOCS / "decisions").glob("0*.md"))]
    assert listed == [(path.name[:4], path.name, re.sub(r"^# \d+\. ", "", title)) for path, title in titles]


def test_every_scalar_that_is_read_stands_with_its_unit_and_its_rules():
    rows = dict(re.findall(r"^\| \[?`(\w+)`\S* \| (.*) \|$", written("scalars.md"), re.MULTILINE))
    assert rows.keys() >= NAMES
    for rule in rules().values():
        for metric in rule.metrics:
            for name in metric.reads:
                assert "." in name or name.startswith("file_") or f"[{rule.code}](rules.md#{rule.name})" in rows[name]
    assert rows["step_time"].startswith("s | ")
    assert rows["tokens_seen"].startswith("tokens | ")
    assert all(unit and title for unit, title, *_ in (row.split(" | ") for row in rows.values()))
