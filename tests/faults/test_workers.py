"""Recording while workers load the data: forked, spawned, or forked by a server; only the training's own process writes."""

import json
import os

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ckaudit import Writer
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder


class Numbers(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.full((4,), index / 40.0)


def assert_whole(folder, steps):
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [*range(1, steps + 1)]
    assert {line["session"] for line in lines} == {0}
    session = json.loads((folder / "run.json").read_text())["sessions"]
    assert [(each["write_errors"], each["checkpoint_ok"]) for each in session] == [(0, True)]
    for path in folder.glob("analysis_*"):
        assert check_checkpoint(path.read_bytes(), path.name).findings == []
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(("start", "epochs"), [("fork", 6), ("spawn", 1), ("forkserver", 1)])
def test_a_training_is_recorded_beside_workers(tmp_path, start, epochs):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(Numbers(), batch_size=4, num_workers=2 if start == "fork" else 1, multiprocessing_context=start)
    with Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=2)]) as recorder:
        for _ in range(epochs):
            for batch in loader:
                optimizer.zero_grad()
                loss = model(batch).square().mean()
                loss.backward()
                recorder.after_backward()
                optimizer.step()
                recorder.step(loss, batch=batch)
    assert_whole(tmp_path, 10 * epochs)


def test_a_fork_in_the_midst_of_writing_writes_nothing_of_its_parent(tmp_path):
    with Writer(tmp_path) as writer:
        for step in range(1, 61):
            writer.step(step, loss=1.0)
            if step % 2:
                continue
            child = os.fork()
            if not child:
                try:
                    writer.step(step + 1000, loss=2.0)
                    writer.close()
                finally:
                    os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    assert_whole(tmp_path, 60)
