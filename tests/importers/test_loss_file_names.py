"""What the names of files say of the numbers in them."""

import pytest

from ckaudit.importers.tables.loss_file_names import loss_named_by_file, names_a_training_log


@pytest.mark.parametrize(
    ("names", "data"),
    [
        ("loss.log losses.json loss_adam.txt losses(1).csv loss_per_epoch.txt losses_lr0.001.txt loss_v2.npy", ()),
        ("train_loss.txt trainLoss.csv run7-train-loss.npy losses_train.json model.v2.train_losses.npy.txt", ("train",)),
        ("val_loss.txt valloss2.txt ValidationLosses.json val_run3_loss.txt dev-loss.npy val_nll.npy", ("val",)),
        ("test_loss.txt losses_testing.csv", ("test",)),
        ("train_val_loss.csv", ("train", "val")),
        ("loss_train_test.csv", ("train", "test")),
    ],
)
def test_a_loss_and_its_data_are_told_by_the_words_of_a_name(names: str, data: tuple[str, ...]) -> None:
    found = [loss_named_by_file(name) for name in names.split()]
    assert [loss.data if loss else None for loss in found] == [data] * len(found)


@pytest.mark.parametrize(
    "names",
    [
        "weights.npy lossless.txt gloss.txt results.csv",
        "kl_loss.txt loss_kl.txt policy_loss.npy critic_losses.csv loss_D.txt G_losses.npy aux_loss.txt",  # no whole ones
        "loss_weights.npy loss_scale.txt loss_landscape.csv loss_grad.txt loss_per_class.txt loss_acc.csv cum_loss.txt",
        "best_val_loss.txt min_loss.txt loss_std.txt",
        "packet_loss.csv stop_loss.csv path_loss.txt",
    ],
)
def test_parts_of_a_loss_and_what_is_lost_elsewhere_are_none(names: str) -> None:
    assert [loss_named_by_file(name) for name in names.split()] == [None] * len(names.split())


def test_what_a_series_goes_by_is_known_to_the_catalogue() -> None:
    pairs = [("train_losses.txt", "train_loss"), ("run3_val_ce_loss.txt", "val_ce_loss"), ("loss_dev.csv", "val_loss")]
    pairs += [("mnist_mse_loss.csv", "mnist_mse_loss"), ("train_val_loss.csv", ""), ("2024-01-02_losses.npy", "loss")]
    assert [(name, loss.column) for name, _ in pairs if (loss := loss_named_by_file(name))] == pairs


def test_the_log_of_a_training_says_both() -> None:
    names = ["train_log.txt", "training-history.csv", "TrainLog.log", "train.log", "log.txt", "train.csv", "training_data.csv"]
    assert [name for name in names if names_a_training_log(name)] == names[:4]


def test_a_name_without_end_costs_nothing() -> None:
    assert loss_named_by_file("loss_" * 100_000) is not None
