"""Columns of numbers, and their joining by step, against the slow way one entry at a time."""

import math
import random

import numpy as np
import pytest

from ckaudit.importers.tables.merge import merge, merge_columns
from ckaudit.importers.tables.numbers import aligned, numbers, ratio, steps_from, without_placeholders
from tests.loops import for_each

NAN = float("nan")


def cells(column):
    return [value if known else None for value, known in zip(column.values.tolist(), column.recorded.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1.5, None, 2], [1.5, None, 2.0]),
        (["1.5", "", "x", None, True, [1], {}], [1.5, None, None, None, None, None, None]),
        (["1e-3", "Infinity", "-inf"], [0.001, math.inf, -math.inf]),
        ([10**400, 1], [math.inf, 1.0]),
        ([], []),
    ],
)
def test_json_values_become_a_column(given, expected):
    assert cells(numbers(given)) == expected


def test_a_recorded_nan_is_no_hole():
    column = numbers([NAN, None, "NaN"])
    assert column.recorded.tolist() == [True, False, True]
    assert column.count == 2


def test_what_is_no_step():
    assert steps_from(numbers([0, 7.0, 0.5, -1, NAN, math.inf, 1e30, None, "12"])).tolist() == [0, 7, -1, -1, -1, -1, -1, -1, 12]


def test_a_ratio_needs_both_and_a_divisor_above_zero():
    made = ratio(numbers([1, 1, None, 1]), numbers([4, 0, 2, None]))
    assert cells(made) == [0.25, None, None, None]
    assert ratio(numbers([1, None]), numbers([0, 1])) is None


def test_series_with_steps_of_their_own_share_their_steps():
    steps, made = aligned({"a": (np.array([1, 5, 5, -1]), numbers([1, 2, 3, 4])), "b": (np.array([2, 5]), numbers([None, 9]))})
    assert steps.tolist() == [1, 2, 5]
    assert cells(made["a"]) == [1.0, None, 3.0]
    assert cells(made["b"]) == [None, None, 9.0]


def slow_placeholders(values, share=0.3, least=3):
    """Decide cell by cell, in words of the docstring."""
    broken = [value is not None and math.isnan(value) for value in values]
    if not any(broken):
        return None
    good = [at for at, value in enumerate(values) if value is not None and not broken[at]]
    if good:
        before = values[: good[-1] + 1]
        nans = sum(broken[: good[-1]])
        if nans < least or nans <= share * sum(value is not None for value in before):
            return None
    return [None if bad else value for bad, value in zip(broken, values, strict=True)]


@for_each("seed", range(200))
def test_placeholders_as_decided_cell_by_cell(seed):
    source = random.Random(seed)
    weights = [source.random() for _ in range(3)]
    values = source.choices([1.5, NAN, None], weights, k=source.randrange(30))
    made = without_placeholders(numbers(values))
    expected = slow_placeholders(values)
    assert (None if made is None else cells(made)) == expected


@for_each("seed", range(300))
def test_columns_are_joined_as_entries_are(seed):
    source = random.Random(seed)
    count = source.randrange(1, 25)
    steps = [source.choice([None, *range(8)]) for _ in range(count)]
    if seed % 3:
        steps = sorted(steps, key=lambda step: -1 if step is None else step)
    series = {name: [source.choice([None, 1.0, 2.0, NAN, 3.5]) for _ in range(count)] for name in "abc"}
    fast = merge_columns(steps, series)
    entries = [
        (step, values)
        for at, step in enumerate(steps)
        if step is not None and (values := {name: column[at] for name, column in series.items() if column[at] is not None})
    ]
    slow = merge(entries)
    assert repr([dict(sorted(row.items())) for row in fast.rows]) == repr([dict(sorted(row.items())) for row in slow.rows])
    assert (fast.resumes, fast.replaced, fast.disordered) == (slow.resumes, slow.replaced, slow.disordered)


@for_each("seed", range(100))
def test_columns_that_begin_anew_are_joined_as_entries_are(seed):
    source = random.Random(seed)
    steps: list[int] = []
    for _ in range(source.randrange(1, 5)):
        begin = source.choice(steps) if steps else 0
        steps += [begin + every // source.choice([1, 1, 1, 2]) for every in range(source.randrange(2, 30))]
    series = {name: [source.choice([None, *map(float, range(9))]) for _ in steps] for name in "ab"}
    series["a"][0] = 0.5
    fast, slow = (
        merge_columns(steps, series),
        merge(
            [
                (step, values)
                for at, step in enumerate(steps)
                if (values := {name: column[at] for name, column in series.items() if column[at] is not None})
            ]
        ),
    )
    assert repr([dict(sorted(row.items())) for row in fast.rows]) == repr([dict(sorted(row.items())) for row in slow.rows])
    assert (fast.resumes, fast.replaced, fast.disordered, fast.torn) == (slow.resumes, slow.replaced, slow.disordered, slow.torn)
