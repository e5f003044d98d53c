"""A run against its own resume, and against a run that took it up elsewhere."""

import json
from pathlib import Path
from typing import Any

import pytest

from ckaudit.contract.schema.diff import Answer, Pair
from ckaudit.diff.resumed import resumed
from tests.diff.pairs import PAIRS, copied, manifest, relog, rewrite


def by_question(pair: Pair) -> dict[str, Answer]:
    return {each.question.removeprefix("resume_"): each for each in pair.answers}


def test_a_clean_resume_goes_on() -> None:
    pair = resumed(PAIRS / "resumed")
    assert pair.word == "same"
    answers = by_question(pair)
    assert set(answers) == {"weights", "optimizer", "rate", "data", "tokens", "steps", "loss"}
    assert all(each.word == "same" for each in answers.values())
    assert (answers["tokens"].left, answers["tokens"].right) == (204_800, 205_312)
    assert (answers["steps"].left, answers["steps"].right) == (400, 401)


def test_an_optimizer_that_lost_its_state_is_worse() -> None:
    pair = resumed(PAIRS / "optimizer_lost")
    assert pair.word == "worse"
    assert {name for name, each in by_question(pair).items() if each.word != "same"} == {"optimizer"}
    assert "after the resume from step 400" in pair.verdict


def test_a_run_without_a_resume_has_nothing_to_compare() -> None:
    assert resumed(PAIRS / "base").word == "not_recorded"


def later(change: Any) -> Any:
    def apply(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["step"] > 400:
                change(line)

    return apply


def shifted(lines: list[dict[str, Any]]) -> None:
    old = {line["step"]: line["batch_hash"] for line in lines}
    for line in lines:
        if line["step"] > 400:
            line["batch_hash"] = old[line["step"] - 5]


CHANGES = [
    ("rate", later(lambda line: line.update(learning_rate=line["learning_rate"] * 3)), "jumps"),
    ("tokens", later(lambda line: line.update(tokens_seen=line["tokens_seen"] - 204_800)), "205,312 were to come at step 401"),
    ("data", shifted, "that of step 401 at step 396"),
    ("scale", lambda lines: [line.update(loss_scale=65_536.0 if line["step"] > 400 else 1024.0) for line in lines], "65536"),
    ("loss", later(lambda line: line.update(train_loss_raw=line["train_loss_raw"] + 2)), "the loss is"),
]


@pytest.mark.parametrize(("question", "change", "sentence"), CHANGES, ids=[each[0] for each in CHANGES])
def test_what_does_not_go_on_is_told_with_both_numbers(tmp_path: Path, question: str, change: Any, sentence: str) -> None:
    run = relog(copied("resumed", tmp_path), change)
    for step in (500, 600, 700):
        rewrite(run, step, lambda whole: (whole.pop("scalars"), whole.pop("loss")))
    answers = by_question(resumed(run))
    assert answers[question].word == "worse"
    assert sentence in answers[question].message
    assert {name for name, each in answers.items() if each.word == "worse"} == {question}


def test_missing_lines_and_other_weights_are_told(tmp_path: Path) -> None:
    def drop(lines: list[dict[str, Any]]) -> None:
        del lines[400:403]

    answers = by_question(resumed(relog(copied("resumed", tmp_path), drop)))
    assert answers["steps"].word == "different"
    assert "3 are missing" in answers["steps"].message
    run = manifest(
        copied("optimizer_lost", tmp_path), lambda whole: whole["sessions"][1]["weight_norms"].update({"norm.weight": 9.0})
    )
    answers = by_question(resumed(run))
    assert (answers["weights"].word, answers["weights"].right) == ("worse", 9.0)


def test_what_is_not_recorded_is_not_the_same(tmp_path: Path) -> None:
    def forget(whole: dict[str, Any]) -> None:
        for name in ("optimizer_restored", "weight_norms"):
            whole["sessions"][1].pop(name, None)

    run = manifest(copied("resumed", tmp_path), forget)
    relog(run, lambda lines: [line.pop("batch_hash") for line in lines])
    pair = resumed(run)
    unknown = {name for name, each in by_question(pair).items() if each.word == "not_recorded"}
    assert unknown == {"weights", "optimizer", "data"}
    assert "not recorded: are the weights those that were saved" in pair.verdict


def continued(name: str, tmp_path: Path) -> Path:
    """Make a folder of its own of the second session of a recorded run."""
    run = copied(name, tmp_path)
    for path in run.glob("analysis_*"):
        if int(path.name.split("_")[3].split(".")[0]) <= 400:
            path.unlink()

    def keep(lines: list[dict[str, Any]]) -> None:
        lines[:] = [line for line in lines if line["step"] > 400]

    relog(run, keep)
    return manifest(run, lambda whole: whole.update(sessions=whole["sessions"][1:]))


def test_a_run_that_took_up_another_is_compared_on_the_overlap(tmp_path: Path) -> None:
    pair = resumed(PAIRS / "base", continued("resumed", tmp_path))
    answers = by_question(pair)
    assert pair.word == "same"
    assert "300 steps of both are equal to the last bit" in answers["loss"].message
    assert "all 300 batches" in answers["data"].message
    assert answers["weights"].word == "same"


def test_an_overlap_that_parts_is_told_with_its_first_step(tmp_path: Path) -> None:
    pair = resumed(PAIRS / "base", continued("optimizer_lost", tmp_path))
    answers = by_question(pair)
    assert answers["optimizer"].word == "worse"
    assert answers["loss"].word == "different"
    assert "the loss of step 402 is" in answers["loss"].message


def test_a_run_from_the_start_takes_up_nothing() -> None:
    assert resumed(PAIRS / "base", PAIRS / "replica").word == "incomparable"


def test_every_resume_of_a_run_is_asked(tmp_path: Path) -> None:
    run = copied("resumed", tmp_path)
    manifest(run, lambda whole: whole["sessions"].append(json.loads(json.dumps(whole["sessions"][1])) | {"resumed_from": 600}))
    names = [each.question for each in resumed(run).answers]
    assert {"resume_loss@400", "resume_loss@600"} <= set(names)
