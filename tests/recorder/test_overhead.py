"""What recording costs, with a time that only moves when it is told to."""

from ckaudit.recorder.loop.session import OverheadMeter


def test_a_checkpoint_says_what_it_and_all_steps_since_the_last_one_cost(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ckaudit.recorder.loop.session.perf_counter", lambda: now[-1])
    meter = OverheadMeter()
    for training, recording in ((8, 2), (7, 2), (30, 3)):
        now.append(now[-1] + training + recording)
        meter.durations.append(training)
        meter.spent += recording
    cost = meter.cost(4)
    assert (cost.ms, cost.step_share) == (4000, 0.5)  # of 8 seconds, the middle of 8, 7 and 30
    assert cost.share == round((2 + 2 + 3) / (10 + 9 + 33), 5)
    now.append(now[-1] + 5)
    assert meter.cost(4).share == 0
