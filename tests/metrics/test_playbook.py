"""Logged numbers side by side: those whose playbook names a bad shape, and rates whose unit nobody knows."""

from msgspec.structs import replace

from ckaudit.metrics.playbook import playbook_numbers, undecided_share
from ckaudit.run.memory import ResultCache
from tests.metrics.samples import cells, run_of


def test_playbook_numbers_are_the_logged_ones_by_name_and_label():
    residual = {10: {"h.0": 1.0, "h.1": 2.0}, 20: {"h.0": 3.0}}
    run = run_of(scalars={"residual_rms": residual, "checkpoint_time": [4.0], "train_loss_raw": [5.0]})
    assert cells(playbook_numbers(run)) == {
        (1, "checkpoint_time"): 4.0,
        (10, "residual_rms/h.0"): 1.0,
        (10, "residual_rms/h.1"): 2.0,
        (20, "residual_rms/h.0"): 3.0,
    }


def test_a_perplexity_is_left_out_where_its_loss_was_logged():
    assert playbook_numbers(run_of(scalars={"val_ppl": [9.0], "train_ppl": [8.0]})).labels == ("train_ppl", "val_ppl")
    assert playbook_numbers(run_of(scalars={"val_ppl": [9.0], "val_loss": [2.0], "train_ppl": [8.0]})).labels == ("train_ppl",)


def test_undecided_share_is_a_hundred_times_what_was_logged_unless_the_unit_is_known():
    run = run_of(scalars={"overflow_rate": [0.25, 0.5], "moe_drop_rate": [0.125], "mfu": [0.5]})
    both = {(1, "overflow_rate"): 25.0, (2, "overflow_rate"): 50.0, (1, "moe_drop_rate"): 12.5}
    assert cells(undecided_share(run)) == both
    assert set(cells(undecided_share(replace(run, units={"overflow_rate": "percent"}, _derived=ResultCache())))) == {
        (1, "moe_drop_rate")
    }
