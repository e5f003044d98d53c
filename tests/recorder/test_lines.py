import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder


def test_lines_hold_the_catalogue_and_what_was_logged(tiny, train, batches, tmp_path, lines):
    recorder = train(tiny(), 3, tmp_path, close=False)
    recorder.log(tokens_seen=96, eval_artifact_hash="ab")
    recorder.step(torch.tensor(2.5), val_loss=torch.tensor(0.1), **{"slice_val_loss/regular": 1.8})
    recorder.close()
    first, last = lines(tmp_path)[0], lines(tmp_path)[-1]
    assert first["schema_version"] == "ck.scalars.v1"
    assert set(first) >= {"step", "time", "session", "train_loss_raw", "learning_rate", "grad_global_norm", "steps_seen"}
    assert (last["step"], last["tokens_seen"], last["eval_artifact_hash"]) == (4, 96, "ab")
    assert (last["train_loss_raw"], last["val_loss"], last["slice_val_loss/regular"]) == (2.5, 0.1, 1.8)
    assert "grad_global_norm" not in last


def test_a_due_line_says_how_far_the_weights_moved(tiny, train, tmp_path, lines, read):
    train(tiny(), 11, tmp_path)
    assert lines(tmp_path)[9]["update_to_weight"] == read(tmp_path, 10).scalars["update_to_weight"]
    assert "update_to_weight" not in lines(tmp_path)[8]


def test_the_learning_rate_is_that_of_the_update(tiny, batches, loss_of, tmp_path, lines):
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for batch in batches(3):
            loss_of(model, batch).backward()
            optimizer.step()
            schedule.step()
            recorder.step(1.0)
    assert [line["learning_rate"] for line in lines(tmp_path)] == [1.0, 0.5, 0.25]


def test_without_after_backward_gradients_are_read_at_the_update(tiny, batches, loss_of, tmp_path, read):
    for clip_norm, source in ((None, "pre_clip"), (0.5, "post_clip")):
        model, folder = tiny(), tmp_path / source
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        facts = {} if clip_norm is None else {"clip_norm": clip_norm}
        with Recorder(model, folder, optimizer=optimizer, planned_steps=1, **facts) as recorder:
            loss_of(model, batches(1)[0]).backward()
            optimizer.step()
            recorder.step(1.0)
        found = read(folder, 1)
        assert found.gradients_source == source
        assert len(found.gradients) == len(list(model.parameters()))
        assert not found.optimizer.clip_coefficient


@pytest.mark.parametrize("read_first", [True, False])
def test_clipping_through_the_recorder_is_torchs_clipping(tiny, batches, loss_of, tmp_path, lines, read, read_first):
    ours, theirs = tiny(), tiny()
    recorder = Recorder(ours, tmp_path, optimizer=torch.optim.SGD(ours.parameters(), lr=0.1), planned_steps=2)
    totals = []
    for batch in batches(2):
        loss_of(ours, batch).backward()
        loss_of(theirs, batch).backward()
        if read_first:
            recorder.after_backward()
        totals.append(recorder.clip_grad_norm_(0.25))
        assert torch.equal(totals[-1], nn.utils.clip_grad_norm_(theirs.parameters(), 0.25))
        recorder.step(1.0)
    recorder.close()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert [line["grad_global_norm"] for line in lines(tmp_path)] == pytest.approx([total.item() for total in totals])
    assert read(tmp_path, 2).optimizer.clip_norm == 0.25
    assert read(tmp_path, 2).gradients_source == "pre_clip"


def test_gradients_that_grew_since_they_were_read_are_read_again(tiny, batches, loss_of, tmp_path, lines):
    ours, theirs = tiny(), tiny()
    recorder = Recorder(ours, tmp_path)
    for model in (ours, theirs):
        for batch in batches(2):
            loss_of(model, batch).backward()
            if model is ours:
                recorder.after_backward()
                break
    loss_of(ours, batches(2)[1]).backward()
    total = recorder.clip_grad_norm_(0.1)
    assert torch.equal(total, nn.utils.clip_grad_norm_(theirs.parameters(), 0.1))
    recorder.step(1.0)
    recorder.close()
    assert lines(tmp_path)[0]["grad_global_norm"] == pytest.approx(total.item())


@pytest.mark.usefixtures("no_waits")
def test_clipping_works_without_a_folder_and_after_the_end(tiny, batches, loss_of, tmp_path):
    (tmp_path / "file").touch()
    ours, theirs = tiny(), tiny()
    for model in (ours, theirs):
        loss_of(model, batches(1)[0]).backward()
    recorder = Recorder(ours, tmp_path / "file")
    recorder.close()
    assert torch.equal(recorder.clip_grad_norm_(0.1), nn.utils.clip_grad_norm_(theirs.parameters(), 0.1))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
