"""Documents that are written by a script are those that the script writes."""

import importlib.util
import re
from pathlib import Path

from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries
from ckaudit.questions import questions
from ckaudit.questions.readiness import COHERENCE, CONSISTENCY, FLUENCY, FOLLOWING, FORMAT, INSTRUCTION

DOCS = Path(__file__).parents[1] / "docs"


def test_the_catalogues_on_paper_are_those_in_the_code():
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == make.document(), "run python docs/make.py"
    assert (DOCS / "questions.md").read_text(encoding="utf-8") == make.interview(), "run python docs/make.py"


def test_the_questions_on_paper_hold_every_question_and_every_name_that_is_read():
    text = (DOCS / "questions.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\S+)$", text, flags=re.MULTILINE) == list(questions())
    for name in (COHERENCE, FLUENCY, FOLLOWING, FORMAT, CONSISTENCY):
        assert f"`microbench_score/{name}`" in text
    assert f"`slice_val_loss/{INSTRUCTION}`" in text


def test_the_catalogue_on_paper_holds_every_metric_under_its_own_heading():
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    headings = re.findall(r"^####? (\w+)$", text, flags=re.MULTILINE)
    assert sorted(headings) == sorted(set(entries()) | set(metrics()))
    assert set(re.findall(r"\]\(#(\w+)\)", text)) == set(entries())
