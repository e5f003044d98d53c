"""Two ranks train what one does."""

import pickle

import pytest
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.training import train
from tests.lab.small import lines
from tests.lab.trained import SHORT, column, fork, trained


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_two_ranks_learn_what_one_does(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ckaudit.lab.training.spawn", fork)
    trained(SHORT, tmp_path / "one")
    plan, change = pickle.loads(pickle.dumps((replace(SHORT, ranks=2), Change())))  # as a spawned process is sent them
    train(plan, change, tmp_path / "two")
    one, two = tmp_path / "one", tmp_path / "two"
    assert [line["step"] for line in lines(two)] == [line["step"] for line in lines(one)]
    for name in ("val_loss", "grad_global_norm", "tokens_seen", "learning_rate"):
        assert len(column(one, name)) > 1
        assert column(two, name) == pytest.approx(column(one, name), rel=1e-4)
    assert sorted(path.name for path in two.glob("*rank001*"))
