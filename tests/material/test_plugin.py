"""A classifier of the user's own, and the interval of a share."""

import sys

import pytest

from ckaudit.errors import CkauditError, UsageError
from ckaudit.material.plugin import load_classifier


@pytest.fixture
def scorer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def write(name, body):
        (tmp_path / f"{name}.py").write_text(body)

    yield write
    for name in [name for name in sys.modules if name.startswith("scorer_")]:
        del sys.modules[name]


def test_a_function_of_the_working_folder_is_found(scorer):
    scorer("scorer_good", "def score(texts):\n    return ['bad' in text for text in texts]\n")
    assert load_classifier("scorer_good:score")(["bad", "good"]) == [1.0, 0.0]


@pytest.mark.parametrize("spec", ["scorer_none", "scorer_none:score", "json:nothing", "json:__doc__", "scorer_broken:score"])
def test_what_is_no_function_is_refused_before_the_work(scorer, spec):
    scorer("scorer_broken", "1 / 0\n")
    with pytest.raises(UsageError, match="--classifier"):
        load_classifier(spec)


@pytest.mark.parametrize(
    "body", ["return [0.5]", "return [2.0] * len(texts)", "return [float('nan')] * len(texts)", "return 1 / 0", "return None"]
)
def test_scores_that_are_none_are_told(scorer, body):
    scorer("scorer_odd", f"def score(texts):\n    {body}\n")
    with pytest.raises(CkauditError, match="scorer_odd"):
        load_classifier("scorer_odd:score")(["a", "b"])
    del sys.modules["scorer_odd"]
