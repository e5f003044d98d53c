"""Points of single series joined to lines: resumes, whatever of them was said as before, and nothing else."""

import math

import numpy as np
import pytest

from ckaudit.importers.importer import rows_of
from ckaudit.importers.trackers.points import NO_TIME, PointCollector, merge_series


def lines(*points, by_time=False, starts=()):
    collected = PointCollector()
    for place, (name, step, value, *time) in enumerate(points):
        collected.add(name, step, value, time[0] if time else NO_TIME if not starts else float(place))
    merged = merge_series(collected.series(by_time=by_time).items(), starts)
    return merged, rows_of(merged.table)


def test_points_of_one_step_are_one_line():
    _, rows = lines(("a", 1, 2.0), ("b", 1, 3.0), ("a", 2, 4.0))
    assert rows == [{"step": 1, "a": 2.0, "b": 3.0}, {"step": 2, "a": 4.0}]


def test_a_series_that_goes_back_and_says_something_else_is_a_resume():
    merged, rows = lines(*[("a", step, 1.0 * step) for step in (1, 2, 3)], ("a", 2, 9.0), ("a", 3, 8.0))
    assert merged.resumes == ((3, 2),)
    assert [(row["session"], row["step"], row["a"]) for row in rows] == [
        (0, 1, 1.0),
        (0, 2, 2.0),
        (0, 3, 3.0),
        (1, 2, 9.0),
        (1, 3, 8.0),
    ]


def test_a_resume_begins_where_the_log_went_back_even_if_its_first_steps_say_the_same():
    """A constant rate alone is logged at the first two steps of the resume; the loss differs only at the third."""
    old = [(name, step, value) for step in range(1, 9) for name, value in (("lr", 0.1), ("loss", 1.0 * step))]
    new = [("lr", 4, 0.1), ("lr", 5, 0.1), ("lr", 6, 0.1), ("loss", 6, 60.0), ("loss", 7, 70.0)]
    merged, rows = lines(*old, *new)
    assert merged.resumes == ((8, 4),)
    assert [row["step"] for row in rows if row["session"] == 1] == [4, 5, 6, 7]


def test_a_late_evaluation_is_no_resume():
    merged, rows = lines(("loss", 1, 1.0), ("loss", 2, 2.0), ("loss", 3, 3.0), ("val", 2, 9.0), ("loss", 4, 4.0))
    assert merged.resumes == ()
    assert rows[1] == {"step": 2, "loss": 2.0, "val": 9.0}


def test_an_evaluation_between_an_older_step_and_the_end_begins_no_session():
    """After the log is past its highest step again, an old way back counts no more."""
    merged, _ = lines(("a", 1, 1.0), ("a", 5, 5.0), ("b", 3, 1.0), ("a", 6, 6.0), ("a", 6, 7.0))
    assert merged.resumes == ()
    assert merged.replaced == 1


def test_a_value_twice_at_one_step_holds_the_later_one():
    merged, rows = lines(("a", 1, 1.0), ("a", 1, 2.0))
    assert (merged.replaced, rows) == (1, [{"step": 1, "a": 2.0}])


def test_the_same_said_twice_is_no_change():
    merged, rows = lines(("a", 1, math.nan), ("a", 2, 2.0), ("a", 1, math.nan), ("a", 2, 2.0))
    assert (merged.replaced, merged.resumes, len(rows)) == (0, (), 2)


def test_two_resumes_are_two_sessions():
    points = [
        ("a", step, step + 0.1 * number)
        for number, (first, last) in enumerate([(1, 9), (5, 12), (8, 15)])
        for step in range(first, last + 1)
    ]
    merged, rows = lines(*points)
    assert merged.resumes == ((9, 5), (12, 8))
    assert max(row["session"] for row in rows) == 2


def test_a_start_that_the_writer_names_begins_a_session_though_nothing_is_said_anew():
    merged, _ = lines(("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, 3.0), ("b", 2, 5.0), starts=[(3.0, 2)])
    assert merged.resumes == ((3, 2),)
    assert lines(("a", 1, 1.0), ("a", 2, 2.0), starts=[(1.0, 2)])[0].resumes == ()


def test_series_of_their_own_are_ordered_by_their_times():
    merged, _ = lines(
        ("a", 1, 1.0, 10.0),
        ("a", 2, 2.0, 20.0),
        ("a", 1, 3.0, 30.0),
        ("a", 2, 4.0, 40.0),
        ("b", 1, 1.0, 11.0),
        ("b", 2, 2.0, 21.0),
        ("b", 1, 3.0, 31.0),
        by_time=True,
    )
    assert merged.resumes == ((2, 1),)


def test_the_time_of_a_line_is_that_of_its_first_point():
    _, rows = lines(("loss", 1, 1.0, 100.0), ("val", 1, 2.0, 160.0))
    assert rows == [{"step": 1, "loss": 1.0, "val": 2.0, "time": 100.0}]


@pytest.mark.parametrize("seed", range(20))
def test_values_come_out_as_a_slow_walk_puts_them(seed):
    """Without resumes the table is what a dictionary of dictionaries holds after all points."""
    source = np.random.default_rng(seed)
    names = ["a", "b", "c"]
    held = {}
    points = []
    for step in range(60):
        for name in source.permutation(names):
            if source.random() < 0.5:
                points.append((str(name), step, float(source.normal())))
                held.setdefault(step, {})[str(name)] = points[-1][2]
    _, rows = lines(*points)
    assert {row["step"]: {name: value for name, value in row.items() if name != "step"} for row in rows} == held
