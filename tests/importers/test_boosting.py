"""Rounds of boosting, as XGBoost, LightGBM and CatBoost print them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.errors import UnreadableError
from ckaudit.importers import Imported, import_runs
from tests.loops import for_each

Import = Callable[..., Imported]


def curve(run: Imported, name: str) -> dict[int, float]:
    return {int(row["step"]): float(row[name]) for row in run.rows if name in row}


def noted(run: Imported, words: str) -> bool:
    return any(words in note for note in run.notes)


@for_each("between", ["\t", "  "])
def test_xgboosts_rounds_count_from_zero(imported: Import, between: str) -> None:
    text = "".join(
        f"[{n}]{between}train-logloss:{0.7 - n / 100:.5f}{between}eval-logloss:{0.8 - n / 200:.5f}\n" for n in range(20)
    )
    run = imported(text, "xgb.log")
    assert run.source == "rounds of boosting"
    assert curve(run, "train_loss_raw") == {n + 1: round(0.7 - n / 100, 5) for n in range(20)}
    assert curve(run, "val_loss") == {n + 1: round(0.8 - n / 200, 5) for n in range(20)}
    assert noted(run, "rounds count from 0: N was taken as step N + 1")
    assert run.manifest.loss_kind == "other"


def test_lightgbms_rounds_are_steps_and_the_best_one_is_not_read_twice(imported: Import) -> None:
    lines = [
        f"[{n}]\ttraining's binary_logloss: 0.{n + 50}\ttraining's auc: 0.9\tvalid_0's binary_logloss: 0.5\tvalid_0's auc: 0.{n}"
        for n in (10, 20, 30)
    ]
    head = "[LightGBM] [Info] Number of data points: 7200\nTraining until validation scores don't improve for 9 rounds\n"
    run = imported(head + "\n".join([*lines, "Early stopping, best iteration is:", lines[0], ""]), "lgb.log")
    assert curve(run, "train_loss_raw") == {10: 0.60, 20: 0.70, 30: 0.80}
    assert curve(run, "val_loss") == {10: 0.5, 20: 0.5, 30: 0.5}
    assert curve(run, "microbench_score/valid_0_auc") == {10: 0.1, 20: 0.2, 30: 0.3}
    assert noted(run, "left out: training-auc")


def catboost(learn: list[float], test: list[float], *, more_is_better: bool = False) -> str:
    best = [(max if more_is_better else min)(test[: n + 1]) for n in range(len(test))]
    rows = zip(range(0, 10 * len(test), 10), learn, test, best, strict=True)
    lines = [f"{n}:\tlearn: {a}\ttest: {b}\tbest: {c} ({n})\ttotal: {n}ms\tremaining: 9.2s" for n, a, b, c in rows]
    return "\n".join(["Learning rate set to 0.08", *lines, "", f"bestTest = {best[-1]}", "bestIteration = 10", ""])


def test_catboosts_measure_is_an_error_where_the_best_is_the_smallest(imported: Import) -> None:
    run = imported(catboost([3.0, 2.0, 1.0, 0.5], [3.1, 2.5, 2.6, 2.7]), "catboost.log")
    assert curve(run, "train_loss_raw") == {1: 3.0, 11: 2.0, 21: 1.0, 31: 0.5}
    assert curve(run, "val_loss") == {1: 3.1, 11: 2.5, 21: 2.6, 31: 2.7}


def test_catboosts_measure_is_a_score_where_the_best_is_the_largest(imported: Import) -> None:
    run = imported(catboost([0.6, 0.7, 0.8, 0.9], [0.5, 0.7, 0.6, 0.65], more_is_better=True), "catboost.log")
    assert curve(run, "microbench_score/test_score") == {1: 0.5, 11: 0.7, 21: 0.6, 31: 0.65}
    assert not {"train_loss_raw", "val_loss"} & {*run.table.names}
    assert noted(run, "left out: learn")


def test_without_held_out_data_a_measure_that_rises_is_not_guessed(imported: Import) -> None:
    falls = "".join(f"{n}:\tlearn: {1 - n / 10}\ttotal: 1ms\tremaining: 2s\n" for n in range(5))
    assert curve(imported(falls, "catboost.log"), "train_loss_raw")[5] == 0.6
    with pytest.raises(UnreadableError):
        imported("".join(f"{n}:\tlearn: {1 + n / 10}\ttotal: 1ms\tremaining: 2s\n" for n in range(5)), "catboost.log")


@for_each(
    "fields, train, val, left",
    [
        ("train-rmse:2 train-mae:1 val-rmse:4 val-mae:3", 2.0, 4.0, "train-mae, val-mae"),
        ("train-auc:0.9 train-error:0.1 test-auc:0.8 test-error:0.2", 0.1, 0.2, "train-auc"),
        ("validation_0-rmse:1 validation_1-rmse:2", None, 2.0, "validation_0-rmse"),
        ("train-gamma-nloglik:1.5 test-gamma-nloglik:1.75", 1.5, 1.75, ""),
        ("train-rmse:0.5+0.01 test-rmse:0.75+0.02", 0.5, 0.75, ""),
        ("cv_agg's train l2: 0.5 + 0.01 cv_agg's valid l2: 0.75 + 0.02", 0.5, 0.75, ""),
        ("train-profit:3 test-rmse:2", None, 2.0, "train-profit"),
    ],
)
def test_the_measure_that_both_have_is_the_loss(
    imported: Import, fields: str, train: float | None, val: float | None, left: str
) -> None:
    run = imported("".join(f"[{n}]\t{fields}\n" for n in range(1, 5)), "xgb.log")
    assert run.rows[0].get("train_loss_raw") == train
    assert run.rows[0].get("val_loss") == val
    assert noted(run, f"left out: {left}") == bool(left)


def test_training_that_begins_again_is_another_run(tmp_path: Path) -> None:
    path = tmp_path / "folds.log"
    path.write_text("".join(f"[{n}]\ttest-rmse:{2 + fold - n / 50}\n" for fold in range(2) for n in range(30)))
    assert [len(run.rows) for run in import_runs(path)] == [30, 30]


def test_a_held_out_error_that_rises_is_found(tmp_path: Path) -> None:
    path = tmp_path / "xgb.log"
    rows = [(0.7 * 0.99**n, 0.7 - 0.006 * min(n, 60) + 0.001 * max(n - 60, 0)) for n in range(400)]
    path.write_text("".join(f"[{n}]\ttrain-logloss:{a:.5f}\teval-logloss:{b:.5f}\n" for n, (a, b) in enumerate(rows)))
    assert [finding.code for finding in triage(path).findings if finding.severity != "note"] == ["LOSS002"]


@for_each(
    "text",
    ["[1] see train-set: 3\n[2] see eval-set: 4\n[3] other\n", "12: learn more\n13: learn more\n14: learn\n", "[2]\n[3]\n[4]\n"],
)
def test_other_lists_are_no_rounds(imported: Import, text: str) -> None:
    with pytest.raises(UnreadableError):
        imported(text, "notes.txt")
