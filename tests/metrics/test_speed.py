"""Speed against slow loops over the lines of a log."""

import math
from statistics import median

import numpy as np
import pytest

from ckaudit.contract.schema.manifest import Session
from ckaudit.metrics.speed import log_silence, mfu, samples_per_sec, step_time, step_time_tail, tokens_per_sec
from tests.metrics.samples import NAN, cells, close, run_of

STEPS = [1, 2, 3, 5, 9, 10, 11, 12]
TIMES = [100.0, 101.5, NAN, 104.0, 112.0, 111.0, 900.0, 902.0]
TOKENS = [10.0, 30.0, 40.0, 80.0, 160.0, 180.0, 200.0, 190.0]
SESSIONS = [Session(start=99.0), Session(start=890.0)]


def values(series):
    return {step: value for (step, _), value in cells(series).items()}


def table(name, column):
    return {name: {step: {name: value} for step, value in zip(STEPS, column, strict=True)}}


def by_hand(whole):
    """Return {step: (seconds, steps, tokens)} since the line before, sessions kept apart."""
    found, before = {}, None
    for step, time, tokens in zip(STEPS, TIMES, TOKENS, strict=True):
        if math.isnan(time):
            continue
        session = sum(each.start <= time for each in SESSIONS)
        if before and before[3] == session and time > before[1]:
            found[step] = time - before[1], step - before[0], tokens - before[2]
        before = step, time, tokens, session
    return {step: each for step, each in found.items() if whole or each[2] > 0}


def test_step_time_is_the_clock_over_the_steps_between_two_lines_of_a_session():
    run = run_of(scalars=table("time", TIMES), sessions=SESSIONS)
    assert close(values(step_time(run)), {step: seconds / steps for step, (seconds, steps, _) in by_hand(True).items()})


def test_silence_counts_what_step_time_leaves_out():
    assert values(log_silence(run_of(scalars=table("time", TIMES), sessions=SESSIONS)))[11] == 789.0


def test_without_a_clock_the_trainers_timer_counts_then_the_ranks():
    ranks = {5: {"rank.0": 1.0, "rank.1": 3.0, "rank.2": 2.0}, 6: {"rank.0": NAN}}
    run = run_of({"rank_facts.step_time": ranks}, {"step_time": {4: {"step_time": 0.5}}})
    assert values(step_time(run)) == {4: 0.5, 5: 2.0}


def test_samples_per_second_are_what_the_trainer_logs():
    run = run_of(scalars={"samples_per_sec": [96.5, NAN, 97.25]})
    assert close(values(samples_per_sec(run)), {1: 96.5, 2: NAN, 3: 97.25})


def test_tokens_per_second_and_utilisation_against_a_loop():
    facts = {"sessions": SESSIONS, "flops_per_token": 6e9, "peak_flops": 1e12}
    run = run_of(scalars=table("time", TIMES) | table("tokens_seen", TOKENS), **facts)
    speed = {step: tokens / seconds for step, (seconds, _, tokens) in by_hand(False).items()}
    assert close(values(tokens_per_sec(run)), speed)
    assert close(values(mfu(run)), {step: each * 6e9 / 1e12 for step, each in speed.items()})


def test_a_published_utilisation_comes_out():
    """PaLM 540B: 238.3K tokens/s on 6,144 chips of 275 TFLOP/s, 46.2 % (Chowdhery et al. 2022, table 3 and appendix B)."""
    attention = 12 * 118 * 48 * 256 * 2048
    run = run_of(scalars={"tokens_per_sec": [238_300.0]}, flops_per_token=6 * 540.35e9 + attention, peak_flops=6144 * 275e12)
    assert values(mfu(run))[1] == pytest.approx(0.462, abs=2e-3)


def test_logged_speed_counts_where_there_is_no_clock():
    run = run_of(scalars={"tokens_per_sec": [5.0], "mfu": [0.4]})
    assert (values(tokens_per_sec(run)), values(mfu(run))) == ({1: 5.0}, {1: 0.4})


def test_tail_of_whole_windows():
    rng = np.random.default_rng(1)
    times = rng.gamma(2.0, 1.0, 250)
    found = values(step_time_tail(run_of(scalars={"step_time": times.tolist()})))
    expected = {}
    for end in (100, 200):
        part = sorted(times[end - 100 : end].tolist())
        place = 0.95 * 99
        low = math.floor(place)
        expected[end] = (part[low] + (place - low) * (part[low + 1] - part[low])) / median(part)
    assert close(found, expected, 1e-9)
