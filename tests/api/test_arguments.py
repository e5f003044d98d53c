"""Wrong arguments of the functions: an error says which one, and what it should have been."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import ckaudit
from ckaudit.errors import CkauditError, UnreadableError, UsageError

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


@pytest.mark.parametrize("good", [[["fixtures/runs/healthy"]], 5, None, b"fixtures/runs/healthy", {"a": "b"}, [3], 1.5])
def test_what_is_no_path_is_refused(good):
    for call in (ckaudit.gate, ckaudit.diff):
        with pytest.raises(UsageError, match="is no path of a run"):
            call("fixtures/runs/healthy", good)


def test_runs_may_be_given_in_a_list():
    paths = ["fixtures/runs/healthy", Path("fixtures/runs/lr_too_high")]
    assert ckaudit.gate(RUN, paths).outcome == ckaudit.gate(RUN, *paths).outcome
    assert ckaudit.validate(paths).word == ckaudit.validate(*paths).word
    assert ckaudit.fleet(paths, jobs=1).verdict == ckaudit.fleet(*paths, jobs=1).verdict
    assert list(ckaudit.metrics(RUN, ["train_loss_raw"])) == list(ckaudit.metrics(RUN, "train_loss_raw"))


WRONG = [None, 3, 1.5, True, b"x", {}, {"a": "b"}, ["x"], ("x",), {"x"}, [], "", "/no/such", object()]
CALLS = {
    "triage": ckaudit.triage,
    "validate": ckaudit.validate,
    "diff": lambda wrong: ckaudit.diff(wrong, RUN),
    "gate": lambda wrong: ckaudit.gate(wrong, RUN),
    "gate, good": lambda wrong: ckaudit.gate(RUN, wrong),
    "metrics": ckaudit.metrics,
    "metrics, names": lambda wrong: ckaudit.metrics(RUN, wrong),
    "fleet": lambda wrong: ckaudit.fleet(wrong, jobs=1),
    "fleet, group_by": lambda wrong: ckaudit.fleet(RUN, jobs=1, group_by=wrong),
    "fleet, jobs": lambda wrong: ckaudit.fleet(RUN, jobs=wrong),
    "fleet, engine": lambda wrong: ckaudit.fleet(RUN, jobs=1, engine=wrong),
    "fleet, output": lambda wrong: ckaudit.fleet(RUN, jobs=1, output=wrong) if wrong not in (None, "", "/no/such") else None,
    "read_run": ckaudit.read_run,
    "assert_healthy": ckaudit.assert_healthy,
    "fail_on": lambda wrong: ckaudit.assert_healthy("fixtures/runs/healthy", fail_on=wrong),
    "like": lambda wrong: ckaudit.triage(RUN, like=wrong),
    "noise": lambda wrong: ckaudit.diff(RUN, RUN, noise=wrong),
    "align": lambda wrong: ckaudit.diff(RUN, RUN, align=wrong),
    "policy": lambda wrong: ckaudit.triage(RUN, policy=wrong),
    "which": lambda wrong: ckaudit.triage(RUN, which=wrong),
}


@pytest.mark.parametrize("place", CALLS)
def test_whatever_is_given_an_error_is_one_of_ours(place):
    for wrong in WRONG:
        with suppress(CkauditError):
            CALLS[place](wrong)
