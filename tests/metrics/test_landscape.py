"""The noise scale from its two parts, against division by hand, and what a log may claim of it."""

import pytest

from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
from ckaudit.metrics.landscape import grad_noise_scale
from tests.metrics.samples import NAN, cells, close, run_of

NAME = "grad_noise_scale"
PARTS = {"grad_noise_trace": [8.0, 9.0, 5.0, None, NAN], "grad_noise_signal": [2.0, -1.0, 0.0, 4.0, 1.0]}


def test_the_scale_is_the_ratio_of_its_parts_and_the_log_fills():
    made = cells(grad_noise_scale(run_of(scalars=PARTS)))
    assert close(made, {(1, NAME): 4.0, (5, NAME): NAN})
    filled = cells(grad_noise_scale(run_of(scalars=PARTS | {NAME: [7.0, 7.0, None, 7.0, 7.0, 7.0]})))
    assert close(filled, {(1, NAME): 4.0, (2, NAME): 7.0, (4, NAME): 7.0, (5, NAME): NAN, (6, NAME): 7.0})


def test_without_parts_it_is_what_was_logged():
    run = run_of(scalars={NAME: {10: {"x": 0.5}, 20: {"x": NAN}, 40: {"x": 0.25}}})
    assert close(cells(grad_noise_scale(run)), {(10, NAME): 0.5, (20, NAME): NAN, (40, NAME): 0.25})


@pytest.mark.parametrize(
    ("logged", "nearest"),
    # Halves of the last digits: 0.5 of both parts. From 7.5 / 2.5 to 8.5 / 1.5, and a hundredth and half a digit of the claim.
    [(4.0, 4.0), (3.1, 3.1), (16.0, 8.5 / 1.5 + 0.16 + 0.5), (0.25, 7.5 / 2.5 - 0.0025 - 0.005)],
)
def test_a_logged_scale_is_compared_where_both_parts_are_known(logged, nearest):
    run = run_of(scalars=PARTS | {NAME: [logged, 7.0]})
    assert claimed_value(run).points == 1
    assert nearest_allowed_value(run).values[0, 0] == pytest.approx(nearest)
