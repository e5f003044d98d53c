import numpy as np
import pytest
import torch

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.loop import session, step_numbers
from ckaudit.recorder.model import gradient_norms as gradients

OWN = {"time", "cost"}  # what no two runs have in common
PACE = {"step_time", "dataloader_stall_frac", "compute_time_frac", "tokens_per_sec"}


class Late(step_numbers.AsyncCopy):
    """An AsyncCopy that counts who opens it: the CPU stands in for the accelerator."""

    sent, opened = 0, 0

    def __init__(self, tensors):
        Late.sent += 1
        super().__init__(tensors)

    def open(self):
        Late.opened += 1
        return super().open()


@pytest.fixture
def far_away(monkeypatch):
    """Have every tensor be on an accelerator, as far as fetching goes."""
    monkeypatch.setattr(Late, "sent", 0)
    monkeypatch.setattr(Late, "opened", 0)

    def switch():
        monkeypatch.setattr(step_numbers, "is_on_accelerator", lambda _tensor: True)
        monkeypatch.setattr(gradients, "are_on_cpu", lambda _tensors: False)
        monkeypatch.setattr(step_numbers, "AsyncCopy", Late)
        monkeypatch.setattr(session, "finish_plain", lambda *_: False)

    return switch


def run(tiny, batches, loss_of, folder, *, steps=30, spike=None, clip=False, after=()):
    torch.manual_seed(0)
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = Recorder(model, folder, optimizer=optimizer, cadence=(Cadence(until=None, every=10),), vocabulary=50)
    for step, batch in enumerate(batches(steps), 1):
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        if clip:
            recorder.clip_grad_norm_(1.0)
        else:
            recorder.after_backward()
        optimizer.step()
        recorder.step(loss * (100 if step == spike else 1), batch=batch, batch_id=step)
        if step in after:
            recorder.log_after(val_loss=float(step))
    recorder.close()


@pytest.mark.parametrize("clip", [False, True])
def test_lines_and_checkpoints_are_those_of_numbers_fetched_at_once(
    tiny, batches, loss_of, tmp_path, lines, read, far_away, clip
):
    run(tiny, batches, loss_of, tmp_path / "near", clip=clip, after=(3, 10, 30))
    far_away()
    run(tiny, batches, loss_of, tmp_path / "far", clip=clip, after=(3, 10, 30))
    assert Late.sent == Late.opened == 30 - 3 - 1  # three checkpoints, one look at vital signs
    near, far = (merged(lines(tmp_path / name)) for name in ("near", "far"))
    assert far == near
    assert [*far] == [*range(1, 31)]
    for step in (0, 10, 20, 30):
        near, far = (read(tmp_path / name, step) for name in ("near", "far"))
        assert {name for name in near.__struct_fields__ if getattr(near, name) != getattr(far, name)} <= OWN


def merged(rows):
    """Return the values of every step: `log_after` may have added a line of its own."""
    found = {}
    for row in rows:
        known = found.setdefault(row["step"], {})
        assert not (known.keys() & row.keys()) - {"step", "session"}
        known |= {name: value for name, value in row.items() if name not in PACE | {"time", "schema_version"}}
    return found


def test_an_event_is_answered_one_step_later(tiny, batches, loss_of, tmp_path, read, far_away):
    run(tiny, batches, loss_of, tmp_path / "near", steps=29, spike=23)
    far_away()
    run(tiny, batches, loss_of, tmp_path / "far", steps=29, spike=23)
    near, far = read(tmp_path / "near", 24), read(tmp_path / "far", 25)
    assert near.triggers == far.triggers == ["loss_spike"]
    assert near.event_step == far.event_step == 23
    assert far.history.loss[:23] == near.history.loss


def test_an_event_of_the_last_step_is_in_the_last_checkpoint(tiny, batches, loss_of, tmp_path, read, far_away):
    far_away()
    run(tiny, batches, loss_of, tmp_path, steps=28, spike=28)
    last = read(tmp_path, 28)
    assert last.triggers == ["last", "loss_spike"]
    assert last.event_step == 28
    assert len(last.history.steps) == 27


def test_only_what_is_away_is_sent_for(far_away, monkeypatch):
    waiting = step_numbers.PendingStats(loss=torch.tensor(2.5), batch=None)
    assert not waiting.send()
    monkeypatch.setattr(step_numbers, "is_on_accelerator", lambda tensor: tensor.dtype == torch.int64)
    waiting.take_batch((torch.arange(6).reshape(2, 3), None))
    name = waiting.hash_of()
    assert waiting.send()
    waiting.arrive()
    assert waiting.hash_of() == name
    assert waiting.loss_of() == np.float32(2.5)
    assert waiting.norms_of() == {}


class Part(torch.Tensor):
    """A loss of which every rank holds a part, as a DTensor is."""

    def to_local(self):
        return self


def test_a_loss_that_ranks_hold_in_parts_is_not_sent_for(monkeypatch):
    monkeypatch.setattr(step_numbers, "is_on_accelerator", lambda _tensor: True)
    assert step_numbers.PendingStats(loss=torch.tensor(2.0)).send()
    assert not step_numbers.PendingStats(loss=torch.tensor(2.0).as_subclass(Part)).send()
