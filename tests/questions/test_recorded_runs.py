"""Recorded trainings: the answers are true to the files, as read with plain NumPy, and never contradict the findings."""

import json
import math
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckaudit.audit import triage
from ckaudit.cli.run import run
from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.report import Answer, Report
from ckaudit.questions import questions
from ckaudit.rules import rules

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"
NAMES = sorted(path.parent.name for path in RUNS.glob("*/expected.toml"))
WORST = {"sev0": {"bad"}, "sev1": {"bad"}, "sev2": {"bad", "watch"}}


@cache
def report(name: str) -> Report:
    return triage(RUNS / name, questions=range(1, 8))


def asked(name: str) -> dict[str, Answer]:
    return {answer.id: answer for phase in report(name).interview for answer in phase.answers}


@cache
def scalars(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RUNS / name / "scalars.jsonl").read_text().splitlines()]


def column(name: str, key: str) -> tuple[np.ndarray, np.ndarray]:
    rows = [(line["step"], line[key]) for line in scalars(name) if isinstance(line.get(key), float | int)]
    steps, values = zip(*rows, strict=True)
    return np.array(steps), np.array(values, float)


@cache
def checkpoints(name: str) -> dict[int, dict[str, Any]]:
    paths = sorted((RUNS / name).glob("analysis_checkpoint_*"))
    found = [json.loads(read_bytes(path, path.name)) for path in paths]
    return {each["step"]: each for each in found if "rank" not in each}


def last(name: str, section: str) -> dict[str, dict[str, Any]]:
    return checkpoints(name)[max(step for step, each in checkpoints(name).items() if each.get(section))][section]


def block_norms(name: str) -> list[float]:
    squares: dict[str, float] = {}
    for tensor, stats in last(name, "gradients").items():
        if tensor.startswith("blocks."):
            block = tensor.split(".")[1]
            squares[block] = squares.get(block, 0.0) + stats["norm"] ** 2
    return [math.sqrt(squares[block]) for block in sorted(squares, key=int)]


def test_a_healthy_run_has_nothing_bad_and_most_of_it_is_well():
    words = [answer.word for answer in asked("healthy").values()]
    assert "bad" not in words
    assert words.count("good") >= 22


def test_what_a_healthy_run_never_recorded_is_not_recorded():
    found = asked("healthy")
    assert {row for row, answer in found.items() if answer.word == "not_recorded" and row.startswith("D")} == {
        "D1.4",
        "D1.6",
        "D2.2",
        "D3.3",
        "D6.2",
        "D6.3",
        "D6.4",
        "D6.5",
    }
    assert all(answer.missing for answer in found.values() if answer.word == "not_recorded")


@pytest.mark.parametrize("name", ["healthy", "overfit_tiny"])
def test_the_course_of_the_loss_is_that_of_the_log(name):
    found = asked(name)
    steps, losses = column(name, "train_loss_raw")
    assert found["D1.1"].numbers["first"] == losses[0]
    assert found["D1.1"].numbers["excess"] == pytest.approx(losses[0] - math.log(28))
    parts = [np.median(losses[len(losses) * part // 10 : len(losses) * (part + 1) // 10]) for part in range(10)]
    assert found["D2.1"].numbers["first"] == pytest.approx(parts[0])
    assert found["D2.1"].numbers["last"] == pytest.approx(parts[-1])
    assert steps[-1] == report(name).step


def test_the_waterfall_is_that_of_the_last_checkpoint():
    healthy = block_norms("healthy")
    found = asked("healthy")
    assert found["D1.2"].numbers["ratio"] == pytest.approx(max(healthy) / min(healthy), rel=1e-6)
    assert found["D4.2"].numbers["ratio"] == pytest.approx(max(healthy) / min(healthy), rel=1e-6)
    ill = block_norms("lr_too_high")
    assert asked("lr_too_high")["D1.2"].word == "bad"
    assert asked("lr_too_high")["D1.2"].numbers["ratio"] == pytest.approx(max(ill) / min(ill), rel=1e-6)


def test_dead_tensors_and_a_block_that_stands_are_those_of_the_files():
    gradients = {tensor: stats["norm"] for tensor, stats in last("zeroed_projection", "gradients").items()}
    found = asked("zeroed_projection")
    assert found["D1.3"].word == "bad"
    assert found["D1.3"].numbers["dead"] == sum(norm < 1e-10 for norm in gradients.values())
    moved = {
        tensor: stats["moved"]
        for tensor, stats in last("zeroed_projection", "weight_deltas").items()
        if stats.get("moved") is not None
    }
    middle = {
        block: np.median([value for tensor, value in moved.items() if tensor.startswith(f"blocks.{block}.")])
        for block in range(3)
    }
    assert found["D2.6"].word == "watch"
    assert found["D2.6"].numbers["smallest"] == pytest.approx(min(middle.values()))
    assert found["D2.6"].numbers["moving"] == sum(value >= 0.1 * max(middle.values()) for value in middle.values()) == 2


def test_overfitting_is_that_of_the_evaluations():
    steps, val = column("overfit_tiny", "val_loss")
    found = asked("overfit_tiny")
    assert found["D5.1"].word == "bad"
    assert found["D5.1"].numbers["rise"] == pytest.approx(val[-1] / val.min() - 1)
    _, train = column("overfit_tiny", "train_loss_raw")
    assert found["D5.1"].numbers["gap"] == pytest.approx(val[-1] - np.median(train[-20:]))
    slopes = [1000 * (val[j] - val[i]) / (steps[j] - steps[i]) for i in range(len(val)) for j in range(i + 1, len(val))]
    assert found["D5.2"].numbers["slope"] == pytest.approx(np.median(slopes))
    assert "too_little_data" in found["D5.1"].sentence
    assert report("overfit_tiny").interview[5].verdict.startswith("Not ready for fine-tuning.")


def test_the_schedule_and_the_spikes_are_those_of_the_log():
    _, rate = column("healthy", "learning_rate")
    found = asked("healthy")["D4.6"]
    assert found.word == "good"
    assert found.numbers["peak"] == rate.max()
    assert found.numbers["end"] == pytest.approx(rate[-1] / rate.max())
    assert asked("lr_too_high")["D4.1"].word == asked("lr_too_high")["D4.3"].word == asked("lr_too_high")["D4.6"].word == "bad"
    _, losses = column("lr_too_high", "train_loss_raw")
    over = [losses[place] / np.median(losses[place - 50 : place]) for place in range(50, len(losses))]
    assert asked("lr_too_high")["D4.1"].numbers["over_median"] == pytest.approx(max(over))


def test_probes_parity_and_replays_of_a_run_that_has_them():
    found = asked("experts_two_ranks")
    exact = {name: stats["exact_match"] for name, stats in last("experts_two_ranks", "probes").items() if "exact_match" in stats}
    held = {
        name
        for each in checkpoints("experts_two_ranks").values()
        for name, stats in each.get("probes", {}).items()
        if stats.get("held_out")
    }
    seen = np.mean([value for name, value in exact.items() if name not in held])
    other = np.mean([value for name, value in exact.items() if name in held])
    assert found["MP-3"].numbers["last"] == pytest.approx(100 * seen)
    assert found["MP-4"].numbers["gap"] == pytest.approx(seen - other)
    assert found["D1.6"].word == "bad"
    assert found["D1.4"].word == "watch"
    assert found["D6.5"].word == "good"
    assert found["MP-2"].word == "good"


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_is_better_than_a_finding_that_bears_on_it(name):
    codes = {rule.name: rule.code for rule in rules().values()}
    for row, answer in asked(name).items():
        bearing = {codes[rule] for rule in questions()[row].rules}
        grave = [each for each in report(name).findings if each.code in bearing and each.severity != "note"]
        if grave:
            assert answer.findings == list(dict.fromkeys(each.code for each in grave))
            assert answer.word in WORST[grave[0].severity]
            assert grave[0].message in answer.sentence
        elif answer.findings:
            assert answer.word == "watch"
            assert set(answer.findings) <= {each.code for each in report(name).findings if each.severity != "note"}
        assert "broke" not in answer.sentence


@pytest.mark.parametrize("name", ["healthy", "experts_two_ranks"])
def test_every_command_of_the_map_runs(name, capfd):
    pointers = {pointer.id: pointer for phase in report(name).interview for pointer in phase.pointers}
    assert set(pointers) == {f"MAP-{number}" for number in range(1, 8)}
    for pointer in pointers.values():
        program, *words = shlex.split(pointer.command)
        assert program == "ckaudit"
        assert run(words) == 0
        assert capfd.readouterr().out


def test_a_step_is_judged_with_what_was_known_then():
    then = triage(RUNS / "nan_batch", step=100, questions=[1, 5])
    assert [phase.number for phase in then.interview] == [1, 5]
    found = {answer.id: answer for phase in then.interview for answer in phase.answers}
    assert found["D1.1"].word == "good"
    assert "at step 100" in found["D1.3"].sentence
    assert all("--step 100" in pointer.command for phase in then.interview for pointer in phase.pointers)
    assert asked("nan_batch")["D1.1"].word == "bad"


def test_a_report_without_questions_has_no_interview():
    assert triage(RUNS / "nan_batch").interview == []


def test_a_run_without_warm_up_has_no_good_schedule_and_no_calm_gradient():
    found = asked("no_warmup_spike")
    steps, norms = column("no_warmup_spike", "grad_global_norm")
    assert {row: found[row].word for row in ("D4.1", "D4.3", "D4.6")} == dict.fromkeys(("D4.1", "D4.3", "D4.6"), "watch")
    assert found["D4.6"].findings == ["MOVE005"]
    assert found["D4.6"].causes[0] == "missing_warmup"
    assert found["D4.3"].numbers["shot"] == pytest.approx(norms[steps <= 51].max() / np.median(norms[:3]))


def test_a_branch_that_is_cut_off_is_seen_in_heads_and_updates():
    found = asked("zeroed_projection")
    assert found["D1.5"].word == found["D3.1"].word == "watch"
    assert "GRAD003 from step 2: blocks.1.attn (all 5 tensors) gets no gradient" in found["D3.1"].sentence
    assert found["D3.5"].word == "good"


def test_a_rate_far_too_high_is_not_training_and_starves_the_last_block():
    found = asked("lr_too_high")
    assert found["D1.1"].word == found["D2.3"].word == "watch"
    assert found["D4.2"].word == "bad"
    norms = block_norms("lr_too_high")
    assert found["D4.2"].numbers["ratio"] == pytest.approx(max(norms) / min(norms), rel=1e-6)
    assert found["D2.3"].numbers["share"] == 1.0


def test_nothing_of_what_a_run_is_now_is_well_after_a_nan_that_stays():
    found = {row: answer.word for row, answer in asked("nan_batch").items()}
    assert "good" not in found.values()


def test_no_sentence_compares_a_number_with_itself():
    for name in NAMES:
        for answer in asked(name).values():
            assert not re.search(r"\b1x (less|its lowest)", answer.sentence)
            assert "more) (and" not in answer.sentence
            if "largest jump" in answer.sentence:
                assert answer.numbers["over_median"] > 1
