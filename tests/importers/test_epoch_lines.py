"""Lines of epochs as columns hold what each line holds."""

import numpy as np

from ckaudit.importers.text.epoch_lines import NONE, EpochLine, lines_as_columns

LINES = [
    EpochLine(3, "[rank 1]: ", 0, 5, 9, {"loss": "2.5", "acc": "7"}),
    EpochLine(4, "", 0, None, None, {"val loss": "1,234"}, names_epoch=True),
    EpochLine(8, "", 1, 0, None, {"acc": "nan", "loss": "1.2.3", "global_step": "12"}, in_samples=True),
]


def test_each_cell_stands_in_its_line():
    lines = lines_as_columns(iter(LINES))
    assert lines.origin.lines.tolist() == [3, 4, 8]
    assert lines.origin.ranks.tolist() == [1, -1, -1]
    assert lines.epochs.tolist() == [0, 0, 1]
    assert lines.batches.tolist() == [5, NONE, 0]
    assert lines.sizes.tolist() == [9, NONE, NONE]
    assert lines.counts.tolist() == [NONE, NONE, 12]
    assert lines.in_samples.tolist() == [False, False, True]
    assert lines.names_epoch.tolist() == [False, True, False]
    loss = lines.columns["loss"]
    assert loss.present.tolist() == loss.with_point.tolist() == [True, False, True]
    assert loss.numbers.recorded.tolist() == [True, False, False]
    assert lines.columns["val loss"].numbers.values[1] == 1234.0
    assert np.isnan(lines.columns["acc"].numbers.values[2])


def test_keys_come_in_the_order_of_the_lines_that_are_kept():
    lines = lines_as_columns(LINES)
    assert list(lines.columns) == ["loss", "acc", "val loss", "global_step"]
    assert list(lines.kept(np.array([False, True, True])).columns) == ["val loss", "acc", "loss", "global_step"]


def test_updates_are_told_by_a_counter_that_the_first_line_and_each_training_loss_hold():
    told = [EpochLine(n, "", 1, None, None, {"loss": "1.0", "global_step": str(10 * n)}) for n in (1, 2)]
    held_out = EpochLine(3, "", 1, None, None, {"val loss": "1.0"})
    assert lines_as_columns([*told, held_out]).counted_updates().tolist() == [10, 20, 20]
    assert lines_as_columns([held_out, *told]).counted_updates() is None
    assert lines_as_columns([*told, LINES[0]]).counted_updates() is None
