import numpy as np
import pytest

from ckaudit.run.scalars import ScalarColumns, SessionLogs
from tests.metrics.samples import NAN, cells, close


def log_of(*lines):
    log = ScalarColumns()
    for line in lines:
        log.add(line["step"], line)
    return log


def test_names_become_series_and_labels_become_columns():
    found = log_of({"step": 1, "loss": 2.0, "val/b": 3.0}, {"step": 5, "val/a": 4.0, "val/b": 5.0}).series()
    assert sorted(found) == ["loss", "val"]
    assert found["val"].labels == ("b", "a")
    assert cells(found["val"]) == {(1, "b"): 3.0, (5, "a"): 4.0, (5, "b"): 5.0}


def test_a_name_with_and_without_label_keeps_both():
    assert log_of({"step": 1, "val": 1.0, "val/x": 2.0}).series()["val"].labels == ("val", "x")


def test_words_are_numbers_text_is_text_and_null_is_not_recorded():
    log = log_of(
        {"step": 1, "a": "NaN", "b": "abc", "c": None},
        {"step": 2, "a": "-Infinity", "b": "def"},
        {"step": 3, "a": True, "opt_state_finite": True},
    )
    assert close(cells(log.series()["a"]), {(1, "a"): NAN, (2, "a"): -np.inf})
    assert cells(log.series()["opt_state_finite"]) == {(3, "opt_state_finite"): 1.0}
    assert (log.texts()["a"].steps, log.texts()["a"].values) == ((3,), ("true",))
    assert (log.texts()["b"].steps, log.texts()["b"].values) == ((1, 2), ("abc", "def"))
    assert "c" not in log.series()


def test_identity_is_no_value():
    log = log_of({"step": 1, "session": 3, "schema_version": "ck.scalars.v1", "time": 5.0})
    assert (list(log.series()), list(log.texts())) == (["time"], [])


def test_lines_of_one_step_are_merged_and_the_last_counts():
    found = log_of({"step": 2, "a": 1.0}, {"step": 1, "a": 0.0}, {"step": 2, "a": 5.0, "b": 6.0}).series()
    assert (found["a"].steps.tolist(), found["a"].values.ravel().tolist()) == ([1, 2], [0.0, 5.0])
    assert cells(found["b"]) == {(2, "b"): 6.0}


def test_checkpoints_fill_only_what_the_log_lacks():
    log, fill = (
        log_of({"step": 1, "loss": 1.0}, {"step": 2, "loss": "NaN"}),
        log_of({"step": 2, "loss": 9.0}, {"step": 3, "loss": 9.0, "lr": 1.0}),
    )
    found = log.series(fill)
    assert close(cells(found["loss"]), {(1, "loss"): 1.0, (2, "loss"): NAN, (3, "loss"): 9.0})
    assert cells(found["lr"]) == {(3, "lr"): 1.0}
    assert cells(log.series()["loss"]).keys() == {(1, "loss"), (2, "loss")}, "the log itself is left as it was"


def latest(rows):
    """Return the rows that no later session replaced, by asking of each row every session's first step."""
    starts = {}
    for row in rows:
        session = row.get("session", 0)
        starts[session] = min(starts.get(session, row["step"]), row["step"])
    return [
        row for row in rows if not any(other > row.get("session", 0) and row["step"] >= start for other, start in starts.items())
    ]


def merged(rows):
    logs = SessionLogs()
    for row in rows:
        logs.add(row | {"mark": 1000 * row.get("session", 0) + row["step"]})
    log, branches = logs.merged()
    kept = set(log.series()["mark"].values.ravel().astype(int)) if log else set()
    return kept, {session: set(branch.series()["mark"].values.ravel().astype(int)) for session, branch in branches.items()}


@pytest.mark.parametrize("seed", range(6))
def test_a_later_session_holds_from_its_first_step_on(seed):
    rng = np.random.default_rng(seed)
    rows = [{"step": int(step), "session": session} for session in (0, 2, 5) for step in np.sort(rng.integers(0, 40, 12))]
    rng.shuffle(rows)
    kept, branches = merged(rows)
    expected = {1000 * row["session"] + row["step"] for row in latest(rows)}
    assert kept == expected
    assert set().union(*branches.values()) == {1000 * row["session"] + row["step"] for row in rows} - expected


def test_a_replay_further_back_replaces_two_sessions():
    rows = (
        [{"step": s} for s in range(1, 9)]
        + [{"step": s, "session": 1} for s in range(6, 12)]
        + [{"step": s, "session": 2} for s in range(4, 7)]
    )
    kept, branches = merged(rows)
    assert kept == {1, 2, 3, 2004, 2005, 2006}
    assert branches == {0: {4, 5, 6, 7, 8}, 1: set(range(1006, 1012))}


def test_one_session_is_left_alone():
    assert merged([{"step": 2}, {"step": 1}]) == ({1, 2}, {})
    assert merged([]) == (set(), {})
