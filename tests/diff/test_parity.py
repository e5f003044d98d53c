"""Two implementations within what their precision allows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ckaudit.diff.parity import LOSS, PARAMETERS, parity
from tests.diff.pairs import PAIRS, copied, lines, relog, rewrite

TENSOR = "blocks.0.mlp.up.weight"


def scaled(run: Path, step: int, statistic: str, factor: float) -> None:
    """Multiply a statistic of one tensor in one checkpoint."""

    def change(whole: dict[str, Any]) -> None:
        whole["weights"][TENSOR][statistic] *= factor

    rewrite(run, step, change)


STEPS = (0, 50, *range(100, 701, 100))


def test_limits_are_those_of_the_playbook_and_of_machine_epsilons() -> None:
    assert (LOSS["float32"], PARAMETERS["float32"]) == (1e-6, 1e-5)
    assert LOSS["float16"] == float(np.finfo(np.float16).eps)
    assert LOSS["bfloat16"] == 2.0**-7  # 7 bits behind the point


def test_runs_of_one_arithmetic_agree_exactly() -> None:
    pair = parity(PAIRS / "base", PAIRS / "identical")
    assert [each.word for each in pair.answers] == ["same", "same"]
    assert pair.word == "same"


def test_small_differences_are_within_the_limit_and_larger_ones_are_placed(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)

    def nudge(found: list[dict[str, Any]]) -> None:
        for line in found:
            line["train_loss_raw"] += 5e-7

    relog(run, nudge)
    for step in STEPS:
        rewrite(
            run,
            step,
            lambda whole: whole["weights"][TENSOR].update(frobenius_norm=whole["weights"][TENSOR]["frobenius_norm"] * (1 + 4e-6)),
        )
    pair = parity(PAIRS / "base", run)
    assert [each.word for each in pair.answers] == ["within_noise", "within_noise"]
    scaled(run, 200, "frobenius_norm", 1 + 4e-5)
    pair = parity(PAIRS / "base", run)
    assert pair.word == "different"
    assert pair.parting is not None
    assert (pair.parting.step, pair.parting.where, pair.parting.statistic) == (200, TENSOR, "weights.frobenius_norm")
    assert pair.answers[1].right == pytest.approx(4.4e-5, rel=0.01)


def test_the_first_loss_over_the_limit_and_the_worst_are_those_of_the_lines() -> None:
    pair = parity(PAIRS / "base", PAIRS / "lr_doubled")
    one, other = ([line["train_loss_raw"] for line in lines(PAIRS / name)] for name in ("base", "lr_doubled"))
    apart = np.abs(np.array(one) - np.array(other))
    assert pair.answers[0].right == pytest.approx(float(apart.max()))
    assert f"at step {int(apart.argmax()) + 1}" in pair.answers[0].message
    assert [each.step for each in pair.propagation] == [500, int((apart > 1e-6).argmax()) + 1]


def test_a_coarser_type_has_a_wider_limit_and_says_so(tmp_path: Path) -> None:
    runs = [copied(name, tmp_path) for name in ("base", "identical")]
    for run in runs:
        for step in STEPS:
            rewrite(run, step, lambda whole: [each.update(dtype="bfloat16") for each in whole["weights"].values()])
    scaled(runs[1], 200, "std", 1.01)
    pair = parity(*runs)
    assert pair.word == "within_noise"
    assert pair.answers[1].band == 1.6e-2
    assert "bfloat16" in pair.noise.message
    assert parity(*runs, parameters=1e-3).word == "different"


def test_a_number_against_nan_is_over_every_limit(tmp_path: Path) -> None:
    run = copied("identical", tmp_path)
    rewrite(run, 100, lambda whole: whole["weights"][TENSOR].update(max="NaN"))
    pair = parity(PAIRS / "base", run)
    assert (pair.word, pair.answers[1].right) == ("different", "Infinity")


def test_without_a_common_step_nothing_is_recorded_and_a_recorded_parity_is_told(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "scalars.jsonl").write_text('{"step": 1, "train_loss_raw": 2.0}\n')
    (tmp_path / "b" / "scalars.jsonl").write_text('{"step": 2, "train_loss_raw": 2.0, "parity_loss_diff": 3e-6}\n')
    pair = parity(tmp_path / "a", tmp_path / "b")
    assert [each.word for each in pair.answers] == ["not_recorded", "not_recorded", "different"]
    assert pair.word == "different"
