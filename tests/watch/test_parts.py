"""The parts of a watch by themselves: what is new, when it judges, what rings the alarm, what is a stall, what is kept."""

import math
from pathlib import Path

import numpy as np
import pytest

from ckaudit.contract.io.folder import CheckpointFile
from ckaudit.contract.schema.report import Finding
from ckaudit.run.scalars import ColumnJoiner, ScalarColumn, ScalarColumns
from ckaudit.watch.announcer import AnnouncedFindings
from ckaudit.watch.growing_run import MAX_VALUES, NEWEST_VALUES, OLDER_VALUES, thin_log
from ckaudit.watch.silence import Ranks, Silence
from ckaudit.watch.watcher import CORE_SHARE, MAX_SAVED, REFILL_SHARE, AlarmingChange, JudgingSchedule


def finding(severity="sev2", first=100, last=110, code="LOSS001", where="loss", also=()):
    return Finding(
        code=code, name="x", severity=severity, message="m", where=where, first_step=first, last_step=last, also=list(also)
    )


def test_a_finding_is_new_once_and_again_when_it_is_graver_but_not_when_it_flickers() -> None:
    known = AnnouncedFindings()
    assert list(known.news([finding()])) == [(finding(), False)]
    assert list(known.news([finding(last=140)])) == []
    assert list(known.news([finding("sev1", last=150)])) == [(finding("sev1", last=150), True)]
    assert list(known.news([finding("sev2", last=160)])) == []
    assert list(known.news([])) == []
    assert list(known.news([finding("sev1", last=170)])) == []


def test_a_second_one_of_its_kind_is_new_though_the_first_was_forgotten() -> None:
    known = AnnouncedFindings()
    list(known.news([finding(first=9_000, last=9_010)]))
    second = finding(first=10_000, last=10_005)
    assert list(known.news([second], in_full=9_500)) == [(second, False)]


def test_what_only_a_thinned_history_shows_is_not_told() -> None:
    assert list(AnnouncedFindings().news([finding(first=100, last=110)], in_full=5_000)) == []


def test_one_that_spreads_is_the_same() -> None:
    known = AnnouncedFindings()
    list(known.news([finding(where="a")]))
    assert list(known.news([finding(where="b", also=("a", "c", "d", "e"))])) == []


def test_judging_costs_its_share_of_a_core_in_the_long_run() -> None:
    pace, spent, cost, hour = JudgingSchedule(), 0.0, 0.1, 3600.0
    now = 0.0
    while now < 10 * hour:
        pace.urgent = True
        if pace.is_due(now):
            pace.judged(now, cost)
            spent += cost
        now += 0.5
    assert spent / now < CORE_SHARE + REFILL_SHARE + MAX_SAVED / now
    assert spent / now > CORE_SHARE / 2


def test_what_is_urgent_is_judged_at_once_and_routine_waits() -> None:
    pace = JudgingSchedule()
    assert pace.is_due(0.0)
    pace.judged(0.0, 0.05)
    assert not pace.is_due(5.0)
    assert pace.is_due(0.05 / CORE_SHARE)
    pace.urgent = True
    assert pace.is_due(0.5)


@pytest.mark.parametrize("ill", ["NaN", "Infinity", math.nan, -math.inf])
def test_the_alarm_rings_when_a_number_becomes_none_and_not_again_while_it_stays_so(ill: float | str) -> None:
    alarm = AlarmingChange()
    assert not alarm.rings({"step": 1, "train_loss_raw": 2.0})
    assert alarm.rings({"step": 2, "train_loss_raw": ill})
    assert not alarm.rings({"step": 3, "train_loss_raw": ill})
    assert not alarm.rings({"step": 4, "val_loss": 2.0})
    assert not alarm.rings({"step": 5, "train_loss_raw": 2.0})
    assert alarm.rings({"step": 6, "train_loss_raw": ill})


def test_the_alarm_rings_at_a_leap_of_loss_or_gradient_and_not_at_noise() -> None:
    alarm = AlarmingChange()
    quiet = [{"step": step, "train_loss_raw": 2.0 + 0.1 * (step % 3), "grad_global_norm": 1.0} for step in range(60)]
    assert not any(alarm.rings(row) for row in quiet)
    assert alarm.rings({"step": 60, "train_loss_raw": 3.5})
    assert alarm.rings({"step": 61, "grad_global_norm": 6.0})


def test_a_stall_is_many_times_the_usual_pause_and_learns_from_evaluations() -> None:
    silence = Silence()
    assert silence.limit is None
    silence.note_lines(100.0, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 60.0, 62.0], wall=62.0)
    assert silence.usual == 2.0
    assert silence.limit == 150.0  # three times the pause of 50 s, which was an evaluation
    assert not silence.is_too_long(249.0)
    assert silence.is_too_long(251.0)
    assert Silence(5.0).limit == 5.0


def test_a_line_that_was_written_long_ago_was_not_heard_just_now() -> None:
    silence = Silence()
    silence.note_lines(1000.0, [float(each) for each in range(10)], wall=509.0)
    assert silence.lasts(1000.0) == 500.0
    assert silence.is_too_long(1000.0)


def test_pauses_are_learned_from_the_clock_where_lines_have_no_time() -> None:
    silence = Silence()
    for now in range(8):
        silence.note_lines(float(now), [], wall=0.0)
    assert silence.usual == 1.0


def files(step: int, *ranks: int | None) -> list[CheckpointFile]:
    return [CheckpointFile(Path("x"), "x", step, None, rank) for rank in ranks]


def test_a_rank_whose_file_does_not_come_is_told_once() -> None:
    ranks = Ranks()
    ranks.take(files(10, None, 1, 2, 3), 0.0)
    assert ranks.missing(100.0) == []
    ranks.take(files(20, None, 1, 3), 200.0)
    assert ranks.missing(210.0) == []
    assert ranks.missing(300.0) == [2]
    assert ranks.missing(400.0) == []
    ranks.take(files(30, None, 1, 2, 3), 500.0)
    ranks.take(files(40, None, 1), 600.0)
    assert ranks.missing(700.0) == [2, 3]


def test_thinning_keeps_the_newest_whole_the_older_at_the_same_steps_and_what_is_not_finite() -> None:
    log, steps = ScalarColumns(), np.arange(1, 3 * MAX_VALUES + 1, dtype=np.int64)
    values = np.sin(steps / 7.0)
    values[1234] = np.nan
    for name, given in (("a", values), ("b", np.cos(steps / 5.0))):
        log.numbers[name] = ScalarColumn()
        log.numbers[name].extend(steps, given)
    log.add(500, {"val_loss": 2.0})
    first = thin_log(log)
    a, b = (ColumnJoiner().join(log.numbers[name]) for name in ("a", "b"))
    assert first == steps[-NEWEST_VALUES]
    assert a.steps[-NEWEST_VALUES:].tolist() == steps[-NEWEST_VALUES:].tolist()
    assert len(a.steps) <= NEWEST_VALUES + OLDER_VALUES + 1
    assert set(b.steps.tolist()) == set(a.steps.tolist()) - {1235}
    assert np.isnan(a.values[a.steps == 1235]).all()
    assert a.steps[0] == 1
    assert np.diff(a.steps[:OLDER_VALUES]).max() <= 2 * len(steps) / OLDER_VALUES
    assert a.values[:5].tolist() == pytest.approx([math.sin(step / 7.0) for step in a.steps[:5].tolist()], abs=0)
    assert ColumnJoiner().join(log.numbers["val_loss"]).steps.tolist() == [500]
    assert thin_log(log) is None
