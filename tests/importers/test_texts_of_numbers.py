"""Texts that Python alone takes for a number, and numbers inside what Python prints."""

import json
from collections.abc import Callable

import pytest

from ckaudit.importers import Imported
from ckaudit.importers.tables.numbers import float_of, number, numbers
from ckaudit.importers.tables.printed_tensors import number_in_tensor, with_plain_numbers
from ckaudit.importers.tables.table import column

Import = Callable[..., Imported]
UNDERSCORED = ["1_1.84", "1_000", "1_0e3", " 12_5 ", "1.2_5"]


@pytest.mark.parametrize("text", UNDERSCORED)
def test_an_underscore_between_digits_makes_no_number(text: str) -> None:
    assert float(text) > 0  # as Python reads it
    assert number(text) is None
    assert numbers([text, 1.5]).recorded.tolist() == [False, True]
    assert column([text, "1.5"]).values == [None, 1.5]
    with pytest.raises(ValueError, match="_"):
        float_of(text)


def test_what_is_no_number_stays_none_in_every_kind_of_file(imported: Import) -> None:
    losses = [2.5, "1_1.5", 2.0, 1.5, 1.25]
    rows = list(enumerate(losses, 1))
    table = "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in rows)
    lines = "".join(json.dumps({"step": step, "loss": loss}) + "\n" for step, loss in rows)
    history = json.dumps({"step": [step for step, _ in rows], "loss": losses})
    records = "".join(f"step: {step} loss: {loss}\n" for step, loss in rows)
    texts = {"log.csv": table, "log.jsonl": lines, "history.json": history, "train.log": records}
    for name, text in texts.items():
        read = {row["step"]: row["train_loss_raw"] for row in imported(text, name).rows if "train_loss_raw" in row}
        assert read == {1: 2.5, 3: 2.0, 4: 1.5, 5: 1.25}, name


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("tensor(3.1304, device='cuda:0', grad_fn=<DivBackward0>)", 3.1304),
        ("tensor([0.5])", 0.5),
        ("tensor([[-1e-3]], dtype=torch.float64, requires_grad=True)", -1e-3),
        ("torch.tensor(2.)", 2.0),
        (" np.float32(0.5) ", 0.5),
        ("numpy.float64(inf)", float("inf")),
        ("array(0.5, dtype=float32)", 0.5),
        ("Array(0.25, dtype=float32, weak_type=True)", 0.25),
        ("tf.Tensor(0.5, shape=(), dtype=float32)", 0.5),
        ("[0.5]", 0.5),
        ("[ .5 ]", 0.5),
    ],
)
def test_the_number_inside_is_taken(text: str, value: float) -> None:
    assert number_in_tensor(text) == value
    assert number(with_plain_numbers(f"[{text}]").strip("[]")) == value


@pytest.mark.parametrize(
    "text",
    [
        "tensor([0.5, 0.6])",
        "[0.5, 0.6]",
        "tensor()",
        "mean(0.5)",
        "tensor(0.5",
        "x tensor(0.5)",
        "tensor(1_0)",
        "(0.5)",
        "tensor(a=1)",
    ],
)
def test_what_is_not_exactly_one_number_is_left(text: str) -> None:
    assert number_in_tensor(text) is None


def test_cells_of_tensors_are_read_and_told_once_for_each_column(imported: Import) -> None:
    rows = [f"""{n},"tensor({n}.5, device='cuda:0', grad_fn=<DivBackward0>)",np.float32({n}.25)\n""" for n in range(1, 4)]
    run = imported("Epoch,Train_loss,Val_loss\n" + "".join(rows), "losses.csv")
    assert [(row["train_loss_raw"], row["val_loss"]) for row in run.rows] == [(1.5, 1.25), (2.5, 2.25), (3.5, 3.25)]
    told = [note for note in run.notes if "what Python prints of a tensor" in note]
    assert [note.partition(" are ")[0] for note in told] == ["3 cells of Train_loss", "3 cells of Val_loss"]


def test_a_tensor_that_is_no_number_is_recorded_as_that(imported: Import) -> None:
    run = imported("step,loss\n1,tensor(2.5)\n2,\"tensor(nan, device='cuda:0')\"\n3,tensor(?)\n4,[1.5]\n")
    losses = {row["step"]: row["train_loss_raw"] for row in run.rows}
    assert (losses[1], losses[2] != losses[2], 3 in losses, losses[4]) == (2.5, True, False, 1.5)
    assert any("1 cell of loss is no number" in note for note in run.notes)
