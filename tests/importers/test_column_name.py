"""Names of columns taken apart: whatever the order, the letters and the marks, the same parts come out."""

from ckaudit.importers.column_name import TEST, TRAIN, VAL, ColumnName, parse_column_name
from tests.loops import for_each


@for_each(
    "name",
    ["val_loss", "Val/Loss", "valLoss", "loss (val)", "Loss/val", "run 3 - val loss", "epoch/val_loss", "val_metrics/loss"],
)
@for_each("ending", ["", " [nats]", " (nats/token)"])
def test_one_quantity_is_read_from_all_its_spellings(name: str, ending: str) -> None:
    assert parse_column_name(name + ending) == ColumnName("val", "loss")


@for_each(
    "name, word, data, measured",
    [
        ("avg_valid_loss", "valid", VAL, "loss"),
        ("mean episode return", "", "", "mean_episode_return"),  # a mean of anything else is a quantity of its own
        ("losses/test", "test", TEST, "loss"),
        ("held_out_accuracy", "held_out", VAL, "accuracy"),
        ("accuracy_trn", "trn", TRAIN, "accuracy"),
        ("step_train", "", "", "step_train"),  # data stands last behind a loss or a score alone
        ("train", "", "", "train"),
        ("lr-AdamW", "", "", "lr_adamw"),
        ("memory (GiB)", "", "", "memory_gib"),
        ("validF1", "valid", VAL, "f1"),
        ("", "", "", ""),
    ],
)
def test_the_data_and_what_was_measured_on_them(name: str, word: str, data: str, measured: str) -> None:
    parsed = parse_column_name(name)
    assert (parsed.data_word, parsed.data, parsed.measured, parsed.slice) == (word, data, measured, "")


@for_each("name", ["val/Books 2/loss", "dev/Books 2/lm_loss", "Evaluation/Books 2/CrossEntropyLoss"])
def test_a_slice_keeps_its_own_spelling(name: str) -> None:
    parsed = parse_column_name(name)
    assert (parsed.data, parsed.slice) == (VAL, "Books 2")
