"""The example on paper is a policy that holds."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
EXAMPLE = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_example_changes_what_it_says(told):
    code, report, _ = told("healthy", policy=EXAMPLE)
    assert code == 0
    assert report["policy"]["changes"] == [
        "select LOSS*, GRAD*, ATTN001, overfitting, SLIC001",
        "loss_spike.k = 8.0",
        "loss_spike.within_steps = 500",
        "vanishing_gradient.max_ratio = 1000.0",
        "ATTN001 sev2",
        "RUN003 note",
        "COST001 off",
        "ignore GRAD003, unknown_field",
        "slices regular, irregular",
        "tau of irregular over regular",
        "fail on sev2",
    ]


def test_the_example_holds_in_a_pyproject_too(told):
    lines = [re.sub(r"^(\[+)", r"\1tool.ckaudit.", line) for line in EXAMPLE.splitlines()]
    code, report, _ = told("healthy", policy="\n".join(["[tool.ckaudit]", *lines]), file="pyproject.toml")
    assert (code, report["policy"]["fail_on"]) == (0, "sev2")


def test_the_error_on_paper_is_the_one_that_is_said(told):
    _, _, err = told("healthy", policy="[thresholds.loss_spike]\nwindows = 9")
    assert err in PAGE


@pytest.mark.parametrize(
    "key", ["select", "ignore", "thresholds", "severities", "fail_on", "slices", "scale", "stage", "profile"]
)
def test_every_key_is_in_the_example(key):
    assert re.search(rf"^(\[+|# )?{key}\b", EXAMPLE, re.MULTILINE)
