"""Wrong arguments of the functions: an error says which one, and what it should have been."""

import numpy as np
import pytest

import ckaudit
from ckaudit.errors import UnreadableError, UsageError

RUN = "fixtures/runs/lr_too_high"


@pytest.mark.parametrize("step", ["5", 1.5, float("nan"), True, [], float("inf")])
def test_a_step_is_a_whole_number(step):
    for call in (ckaudit.triage, ckaudit.metrics):
        with pytest.raises(UsageError, match=r"step: .* is not a whole number"):
            call(RUN, step=step)
    with pytest.raises(UsageError, match=r"step: .* is not a whole number"):
        ckaudit.diff(RUN, RUN, step=step)


@pytest.mark.parametrize("step", [20, 20.0, np.int64(20), np.float64(20)])
def test_any_whole_number_is_a_step(step):
    assert ckaudit.triage(RUN, step=step).report.step == 20


@pytest.mark.parametrize("questions", [8, [0], [1, 9], "x", True, ["1"], 3.0])
def test_questions_are_phases(questions):
    with pytest.raises(UsageError, match=r"questions: .* is no phase"):
        ckaudit.triage(RUN, questions=questions)


@pytest.mark.parametrize("columns", [5, "x", {"loss": 5}, {5: "x"}, {"loss": None}, [("loss", "x")]])
def test_columns_are_names_by_names(columns):
    with pytest.raises(UsageError, match=r"columns: .* does not give names by names"):
        ckaudit.triage(RUN, columns=columns)


def test_a_healthy_run_that_does_not_exist_is_named():
    with pytest.raises(UsageError, match="nope does not exist"):
        ckaudit.triage(RUN, like="nope")


def test_a_name_that_is_too_long_is_no_run():
    with pytest.raises(UnreadableError, match="cannot reach xxx"):
        ckaudit.triage("x" * 5000)


@pytest.mark.parametrize("good", [["fixtures/runs/healthy"], 5, None])
def test_what_is_no_path_is_refused(good):
    with pytest.raises(UsageError, match="is no path of a run"):
        ckaudit.gate("fixtures/runs/healthy", good)
