import numpy as np
import pytest

from ckaudit.contract.schema.manifest import Session
from ckaudit.metrics.after_resume import loss_after_resume
from ckaudit.metrics.observability import checkpoint_written
from tests.metrics.samples import cells, run_of

SESSIONS = [Session(start=1.0), Session(start=2.0, resumed_from=40)]


def test_losses_after_a_resume_are_measured_by_the_line_before_it():
    wobble = [0.1 if step % 2 else -0.1 for step in range(1, 41)]
    losses = [4.0 - 0.02 * step + off for step, off in zip(range(1, 41), wobble, strict=True)] + [
        4.0,
        3.18,
        3.16,
        3.14,
        3.12,
        9.0,
    ]
    found = cells(loss_after_resume(run_of(scalars={"train_loss_raw": losses}, sessions=SESSIONS)))
    assert [step for step, _ in found] == [41, 42, 43, 44, 45]
    values = np.array(list(found.values()))
    steps = np.arange(41, 46)
    expected = (np.array([4.0, 3.18, 3.16, 3.14, 3.12]) - (4.0 - 0.02 * steps)) / (1.4826 * 0.1)
    assert values == pytest.approx(expected, abs=0.05)


def test_nothing_is_said_without_a_resume_or_with_too_little_before_it():
    assert not loss_after_resume(run_of(scalars={"train_loss_raw": [2.0] * 60}))
    assert not loss_after_resume(run_of(scalars={"train_loss_raw": [None] * 35 + [2.0] * 10}, sessions=SESSIONS))


def test_files_that_were_found_are_told_as_they_were_read():
    rows = {10: {"file_ok": 1.0}, 20: {"file_ok": 0.0}}
    assert cells(checkpoint_written(run_of(scalars={"file_ok": rows}))) == {(10, "file_ok"): 1.0, (20, "file_ok"): 0.0}
