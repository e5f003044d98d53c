"""Documents that are written by a script are those that the script writes."""

import importlib.util
import re
from pathlib import Path

from ckaudit.metrics import metrics
from ckaudit.metrics.catalogue import entries

DOCS = Path(__file__).parents[1] / "docs"


def test_the_catalogue_on_paper_is_the_one_in_the_code():
    spec = importlib.util.spec_from_file_location("docs_make", DOCS / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert (DOCS / "metrics.md").read_text(encoding="utf-8") == make.document(), "run python docs/make.py"


def test_the_catalogue_on_paper_holds_every_metric_under_its_own_heading():
    text = (DOCS / "metrics.md").read_text(encoding="utf-8")
    headings = re.findall(r"^####? (\w+)$", text, flags=re.MULTILINE)
    assert sorted(headings) == sorted(set(entries()) | set(metrics()))
    assert set(re.findall(r"\]\(#(\w+)\)", text)) == set(entries())
