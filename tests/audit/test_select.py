"""A name on the command line means the metric that the catalogue's own files say it means."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ckaudit.audit.measure import select
from ckaudit.errors import UsageError
from ckaudit.explain import explain

ROOT = Path(__file__).parents[2]
CATALOGUE = [tomllib.loads(path.read_text()) for path in sorted((ROOT / "ckaudit" / "metrics" / "catalogue").glob("*.toml"))]
OTHERS = [
    (word, name)
    for document in CATALOGUE
    for name, entry in document.items()
    if name != "title"
    for word in (*entry.get("rows", ()), *entry.get("also_called", ()))
]


def names(*asked):
    return [metric.name for metric in select(asked)]


def test_rows_and_other_names_mean_their_metric():
    assert {word: names(word) for word, _ in OTHERS} == {word: [name] for word, name in OTHERS}
    assert len([word for word, _ in OTHERS if word[1:].isdigit()]) == 67 + 16


@pytest.mark.parametrize("word", ["f10", "m19", "Grad-Norm", "VAL_LOSS", " max_logit"])
def test_spelling_is_forgiven_as_explain_does(word):
    assert names(word) == [page.name for page in explain([word])]


def test_names_are_taken_together_in_the_order_of_the_catalogue():
    assert names("val_loss", "M19", "max_logit", "grad_global_n*") == ["grad_global_norm", "max_attn_logit", "val_loss"]


@pytest.mark.parametrize(("typed", "near"), [("F99", "F9"), ("max_logits", "max_logit"), ("grad_globl_norm", "grad_global_norm")])
def test_an_unknown_name_suggests_the_nearest(typed, near):
    with pytest.raises(UsageError) as caught:
        select([typed])
    assert near in caught.value.hint


def test_a_pattern_is_one_of_own_names():
    assert "attn_entropy" in names("attn_*")
    assert "gradient_norm" not in names("grad_*")
    with pytest.raises(UsageError):
        select(["M0*"])


def test_the_prose_is_not_read_for_a_metric_s_own_name():
    code = "import sys; from ckaudit.audit.measure import select; select({}); print('tomllib' in sys.modules)"
    for asked, is_read in ((["val_loss", "grad_*"], False), (["val_loss", "M19"], True)):
        assert subprocess.check_output([sys.executable, "-c", code.format(asked)], cwd=ROOT, text=True) == f"{is_read}\n"
