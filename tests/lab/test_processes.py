"""Two ranks train what one does."""

import pytest
from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.training import train
from tests.lab.small import lines
from tests.lab.trained import SHORT, column, trained


@pytest.mark.torch
def test_two_ranks_learn_what_one_does(tmp_path) -> None:
    trained(SHORT, tmp_path / "one")
    train(replace(SHORT, ranks=2), Change(), tmp_path / "two")
    one, two = tmp_path / "one", tmp_path / "two"
    assert [line["step"] for line in lines(two)] == [line["step"] for line in lines(one)]
    for name in ("val_loss", "grad_global_norm", "tokens_seen", "learning_rate"):
        assert len(column(one, name)) > 1
        assert column(two, name) == pytest.approx(column(one, name), rel=1e-4)
    assert sorted(path.name for path in two.glob("*rank001*"))
