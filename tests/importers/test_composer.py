"""Blocks that Composer's console prints for each batch."""

from collections.abc import Callable

import pytest

from ckaudit.importers import Imported

Import = Callable[..., Imported]
BLOCK = """[{head}]:
\t Train time/batch: {n}
\t Train loss/train/total: {loss:.4f}
\t Train metrics/train/LanguageCrossEntropy: {loss:.4f}
\t Train throughput/tokens_per_sec: 6598.0451
\t Train throughput/device/mfu: 0.2489
\t Train lr-DecoupledAdamW/group0: 0.0000
"""
EVALUATION = """[Eval batch=1/320] Eval on eval data
\t Eval metrics/eval/LanguageCrossEntropy: {loss:.4f}
"""


def log(losses: list[float], head: str = "batch={n}/4800") -> str:
    blocks = [BLOCK.format(head=head.format(n=n), n=n - 1, loss=loss) for n, loss in enumerate(losses, 1)]
    return "".join(blocks) + EVALUATION.format(loss=losses[-1] + 0.1)


def test_each_block_is_a_row(imported: Import) -> None:
    run = imported(log([10.5, 9.25, float("nan")]), "composer.log")
    assert run.source == "Composer console"
    assert [row["step"] for row in run.rows] == [1, 2, 3]
    assert [row["train_loss_raw"] for row in run.rows][:2] == [10.5, 9.25]
    assert [row["tokens_per_sec"] for row in run.rows] == [6598.0451] * 3
    assert [row["mfu"] for row in run.rows] == [0.2489] * 3


def test_a_rate_of_four_decimals_is_no_rate_of_zero(imported: Import) -> None:
    run = imported(log([10.5, 9.25]), "composer.log")
    assert "learning_rate" not in run.table.names
    assert any("printed in four decimals: it was left out" in note for note in run.notes)


def test_an_evaluation_is_of_the_batch_before_it(imported: Import) -> None:
    run = imported(log([10.5, 9.25]), "composer.log")
    assert [(row["step"], row["val_loss"]) for row in run.rows if "val_loss" in row] == [(2, pytest.approx(9.35))]


def test_batches_count_anew_in_each_epoch(imported: Import) -> None:
    text = log([3.0, 2.5], "epoch=1/2][batch={n}/2") + log([2.0, 1.5], "epoch=2/2][batch={n}/2")
    assert [row["step"] for row in imported(text, "composer.log").rows] == [1, 2, 3, 4]
