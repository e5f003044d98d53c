import pytest
import torch

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.files import scalar_log as scalars
from ckaudit.recorder.loop import session

PACE = {"time", "step_time", "dataloader_stall_frac", "compute_time_frac", "tokens_per_sec"}  # what no two runs have in common


def run(tiny, batches, loss_of, folder, *, logged, with_batch, break_at=None):
    torch.manual_seed(0)
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with Recorder(model, folder, optimizer=optimizer, cadence=(Cadence(until=None, every=20),), clip_norm=1.0) as recorder:
        parts = batches(12)
        for step in range(1, 61):
            batch = parts[step % 12]  # so that batches repeat
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            if logged:
                recorder.log(tokens_seen=64 * step, learning_rate=0.5, note="x", odd=float("nan") if step == 7 else step / 3)
            broken = float("nan") if step == break_at else 1.0
            recorder.step(loss * broken, **({"batch": batch, "batch_id": f"b{step % 12}"} if with_batch else {}))


@pytest.fixture
def counted(monkeypatch):
    """Count the steps that went the short way."""
    taken, short = [], session.finish_plain

    def count(step_state, *rest):
        done = short(step_state, *rest)
        taken.append(step_state.step) if done else None
        return done

    monkeypatch.setattr(session, "finish_plain", count)
    return taken


# Each of two with both of every other.
@pytest.mark.parametrize(
    ("logged", "with_batch", "break_at"), [(False, False, None), (False, True, 33), (True, False, 33), (True, True, None)]
)
def test_the_short_way_writes_what_the_long_way_does(
    tiny, batches, loss_of, tmp_path, lines, read, counted, monkeypatch, logged, with_batch, break_at
):
    ways = {"logged": logged, "with_batch": with_batch, "break_at": break_at}
    run(tiny, batches, loss_of, tmp_path / "short", **ways)
    special = {1, 20, 25, 40, 50, 60} | ({33, 34} if break_at else set())
    assert not special & {*counted}
    assert len(counted) > 40  # while a checkpoint is being written a line takes the long way
    monkeypatch.setattr(session, "finish_plain", lambda *_: False)
    run(tiny, batches, loss_of, tmp_path / "long", **ways)
    short, long = ([without_pace(line) for line in lines(tmp_path / name)] for name in ("short", "long"))
    assert short == long
    assert [[*line] for line in short] == [[*line] for line in long]
    steps = [20, 40, 60] if break_at is None else [20, 34, 40, 60]
    for step in steps:
        one, other = read(tmp_path / "short", step), read(tmp_path / "long", step)
        assert {name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name)} <= {"time", "cost"}


def without_pace(line):
    return {name: value for name, value in line.items() if name not in PACE}


def test_a_disk_that_fails_in_the_short_way_is_named_and_costs_no_line(
    tiny, batches, loss_of, tmp_path, lines, counted, caplog, monkeypatch
):
    write, failures = (
        scalars.ScalarLogWriter.write,
        iter([True] * 2),
    )  # lines that wait are written together: there may be few calls

    def fail_for_a_while(log, data):
        if next(failures, False):
            raise OSError("full")
        write(log, data)

    monkeypatch.setattr(scalars.ScalarLogWriter, "write", fail_for_a_while)
    run(tiny, batches, loss_of, tmp_path, logged=False, with_batch=True)
    assert [line["step"] for line in lines(tmp_path)] == [*range(1, 61)]
    assert "writing scalars.jsonl failed" in caplog.text
