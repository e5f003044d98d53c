"""The everyday trainings: their names, the causes of their mistakes, what counts as found, and that they run."""

import json
import math

import pytest
from msgspec.structs import replace

from benchmarks.everyday import page
from benchmarks.everyday.catalogue import make_training, names_of_all, select_names
from benchmarks.everyday.healthy import healthy_trainings
from benchmarks.everyday.mistakes import mistakes
from benchmarks.everyday.outcome import Losses, Verdict, has_effect, read_losses, score
from benchmarks.everyday.tasks import TASKS
from benchmarks.everyday.training import run
from ckaudit.audit import triage
from ckaudit.causes.cause import causes

WELL = Verdict(Losses(2.0, 1.0, 1.1), (), None, 0.0)


def test_every_mistake_names_causes_that_there_are_and_tasks_that_there_are():
    for each in mistakes().values():
        assert each.causes
        assert set(each.causes) <= causes().keys(), each.name
        assert each.tasks
        assert set(each.tasks) <= TASKS.keys(), each.name


def test_every_name_is_that_of_one_training_and_says_what_it_is():
    names = [*TASKS, *healthy_trainings(), *mistakes()]
    assert len(set(names)) == len(names)
    assert len(set(names_of_all())) == len(names_of_all())
    assert all(make.__doc__ for make in (TASKS | healthy_trainings()).values())
    assert all(each.about for each in mistakes().values())


def test_trainings_are_chosen_by_name_task_or_mistake_with_the_task_that_they_are_held_against():
    assert select_names("") == names_of_all()
    assert select_names("dropout_half,resnet.loader_stuck") == ["resnet", "dropout_half", "resnet.loader_stuck"]
    assert select_names("causal_mask_missing") == ["gpt", "gpt.causal_mask_missing"]
    assert all(name.partition(".")[0] == "gpt" for name in select_names("gpt"))
    with pytest.raises(ValueError, match="nothing is called gtp"):
        select_names("gtp")


@pytest.mark.parametrize("name", ["mlp", "batches_of_8", "mlp.gradients_not_zeroed", "mlp.resumed_without_weights"])
def test_a_training_of_thirty_steps_is_recorded(tmp_path, caplog, name):
    training = make_training(name, 0)
    training.steps, training.every = 30, 10
    if training.stop:
        training.stop = 15
    run(training, tmp_path)
    found = read_losses(tmp_path)
    assert found.first == pytest.approx(math.log(5), abs=0.3)
    assert found.final > 0
    assert found.held_out > 0
    assert json.loads((tmp_path / "scalars.jsonl").read_text().splitlines()[-1])["step"] == 30
    assert not caplog.records
    assert triage(tmp_path).checks


def test_a_mistake_has_an_effect_where_a_loss_is_worse_by_a_twentieth_of_the_healthy_fall():
    harmful, flattering = mistakes()["loader_stuck"], mistakes()["causal_mask_missing"]
    for loss, by_harm, by_flattery in ((1.04, False, False), (1.06, True, True), (0.9, False, True), (math.nan, True, True)):
        losses = Losses(2.0, loss, 1.1)
        assert has_effect(harmful, losses, WELL.losses) is by_harm
        assert has_effect(flattering, losses, WELL.losses) is by_flattery
    assert has_effect(harmful, Losses(2.0, 1.0, 1.2), WELL.losses)
    assert not has_effect(mistakes()["loss_summed"], Losses(128.0, 64.0, 1.1), WELL.losses)
    assert has_effect(mistakes()["loss_summed"], Losses(128.0, math.nan, 1.1), WELL.losses)


def test_a_score_tells_the_right_cause_from_a_wrong_one():
    each, ill = mistakes()["loader_stuck"], Verdict(Losses(2.0, 2.0, 2.0), ("sev2 DATA003",), "loader_stuck", 0.9)
    wrong = replace(ill, cause="too_little_data")
    assert score(each, ill, WELL).cell == "named"
    assert (score(each, wrong, WELL).cell, score(each, wrong, WELL).misled) == ("too_little_data", True)
    assert not score(each, replace(wrong, confidence=0.69), WELL).misled
    assert score(each, replace(ill, cause=None), WELL).cell == "found"
    assert score(each, replace(WELL, losses=ill.losses), WELL).cell == "silent"
    assert score(each, WELL, WELL).cell == "(silent)"


def test_the_tables_count_what_has_an_effect_apart_from_what_has_none():
    ill = Verdict(Losses(2.0, 2.0, 2.0), ("sev2 DATA003",), "loader_stuck", 0.9)
    verdicts = {"mlp": WELL, "dropout_half": ill, "mlp.loader_stuck": ill, "mlp.learning_rate_x10": WELL}
    lines = page.tables({"recorder": verdicts, "log": verdicts}).splitlines()
    assert lines[2:4] == ["| recorder | 1 of 2 | 1 of 1 | 1 | 0 |", "| log | 1 of 2 | 1 of 1 | 1 | 0 |"]
    assert lines[5] == "1 of 2 healthy trainings have a finding of sev2 or worse."
    assert "| dropout_half | A classifier with dropout of one half, Adam | sev2 DATA003 |" in lines
    told = "1 are named first, 0 are called something else with a confidence of 0.7 or more."
    assert f"1 of 1 mistakes with an effect are found: {told}" in lines
    assert "1 more have no effect; 0 of them are found." in lines
    assert lines[-2:] == [
        "| loader_stuck | From a third of the training on the loader yields the same batch | named |",
        "| learning_rate_x10 | The learning rate is 10 times as high | (silent) |",
    ]
    assert page.MARK in page.PAGE.read_text(encoding="utf-8")
