from ckaudit.recorder.loop.triggers import BlackBox, HistoryStep


def moment(step, **norms):
    return HistoryStep(step, loss=float(step), learning_rate=None, batch_hash=None, gradient_norms=norms)


def test_the_last_steps_are_columns_oldest_first():
    box = BlackBox(3)
    for step in range(1, 6):
        box.add(moment(step, a=step / 3))
    history = box.dump(before=6)
    assert history.steps == [3, 4, 5]
    assert history.loss == [3.0, 4.0, 5.0]
    assert history.gradient_norms == {"a": [1.0, 1.333, 1.667]}
    assert history.learning_rate == [None] * 3


def test_a_tensor_that_was_missing_at_a_step_is_null_there():
    box = BlackBox()
    box.add(moment(1, a=1.0))
    box.add(moment(2, b=float("nan")))
    assert box.dump(before=3).gradient_norms == {"a": [1.0, None], "b": [None, "NaN"]}


def test_the_checkpoints_own_step_is_not_before_it():
    box = BlackBox()
    assert box.dump(before=9) is None
    box.add(moment(9))
    assert box.dump(before=9) is None
    assert box.dump(before=10).steps == [9]


def test_nan_losses_are_words():
    box = BlackBox()
    box.add(HistoryStep(1, float("nan"), 0.1, "blake2b:00", {}, {"w": 2.0}))
    history = box.dump(before=2)
    assert (history.loss, history.batch_hash, history.update_norms) == (["NaN"], ["blake2b:00"], {"w": [2.0]})
    assert not history.gradient_norms
