"""Data, targets and batches that are wrong."""

from itertools import cycle, islice, repeat

import torch
from torch import Tensor

from benchmarks.everyday.data import Batch, concatenate, picked, sampled, source
from benchmarks.everyday.mistakes import CLASSES, NUMBERS, TARGETS, change_batches, change_inputs, mistake
from benchmarks.everyday.training import Training


def _shuffled(targets: Tensor) -> Tensor:
    return targets[torch.randperm(len(targets))]


@mistake("data_not_shuffled")
def not_shuffled(training: Training) -> None:
    """The rows are sorted by their targets, and the loader does not shuffle them."""
    rows = concatenate(list(islice(training.batches, 40)))
    size = len(rows[0]) // 40
    in_order = picked(rows, rows[-1].flatten(1)[:, 0].argsort() if rows[-1].dim() > 1 else rows[-1].argsort())
    training.batches = cycle(zip(*(torch.split(column, size) for column in in_order), strict=True))


@mistake("targets_misaligned", "noisy_labels", tasks=TARGETS)
def targets_shuffled(training: Training) -> None:
    """The targets are shuffled apart from their inputs."""
    change_batches(training, lambda _, batch: (batch[0], _shuffled(batch[1])))


@mistake("targets_misaligned", "noisy_labels", tasks=TARGETS)
def targets_of_the_row_before(training: Training) -> None:
    """Each row has the target of the row before it."""
    change_batches(training, lambda _, batch: (batch[0], batch[1].roll(1, 0)))


@mistake("noisy_labels", "targets_misaligned", "data_distribution_shift", tasks=TARGETS)
def targets_shuffled_later(training: Training) -> None:
    """From halfway on the targets are shuffled apart from their inputs."""
    half = training.steps // 2
    change_batches(training, lambda step, batch: (batch[0], _shuffled(batch[1])) if step > half else batch)


@mistake("noisy_labels", "targets_misaligned", tasks=CLASSES)
def half_of_the_labels_random(training: Training) -> None:
    """Half of the labels are drawn at random."""

    def change(_: int, batch: Batch) -> Batch:
        inputs, labels = batch
        drawn = torch.randint_like(labels, int(labels.max()) + 1)
        return inputs, torch.where(torch.rand(labels.shape) < 0.5, drawn, labels)

    change_batches(training, change)


@mistake("targets_not_shifted", tasks=("gpt",), flatters=True)
def targets_not_shifted(training: Training) -> None:
    """The targets are the inputs, not the tokens that follow them."""
    change_batches(training, lambda _, batch: (batch[0], batch[0]))
    training.held_out = training.held_out and (training.held_out[0], training.held_out[0])


@mistake("inputs_not_normalized", tasks=NUMBERS)
def inputs_x100(training: Training) -> None:
    """The inputs are not divided by their deviation, which is 100."""
    change_inputs(training, lambda inputs: 100 * inputs)


@mistake("targets_misaligned", "context_not_used", "dead_path", tasks=tuple(name for name in NUMBERS if name in TARGETS))
def inputs_all_zero(training: Training) -> None:
    """The inputs are all 0, as after a division of integers."""
    change_inputs(training, torch.zeros_like)


@mistake("data_distribution_shift", tasks=(*NUMBERS, "gru"))
def inputs_change_later(training: Training) -> None:
    """From halfway on the inputs are of another kind: mirrored and brighter, or other words."""
    half = training.steps // 2

    def other(inputs: Tensor) -> Tensor:
        return 1.8 * inputs.flip(-1) + 0.5 if inputs.is_floating_point() else (7 * inputs + 3) % 300

    change_batches(training, lambda step, batch: (other(batch[0]), *batch[1:]) if step > half else batch)


@mistake("bad_batch", "nonfinite_operation", tasks=NUMBERS)
def nan_in_a_batch(training: Training) -> None:
    """One row of one batch is NaN."""
    half = training.steps // 2

    def change(step: int, batch: Batch) -> Batch:
        if step == half:
            batch[0][0] = float("nan")
        return batch

    change_batches(training, change)


@mistake("bad_batch", tasks=NUMBERS)
def two_batches_x30(training: Training) -> None:
    """The inputs of two batches are 30 times as large."""
    bad = (training.steps // 2, training.steps // 2 + 1)
    change_batches(training, lambda step, batch: (30 * batch[0], *batch[1:]) if step in bad else batch)


@mistake("too_little_data", "loader_stuck", "batches_repeated")
def one_batch_alone(training: Training) -> None:
    """The loader yields one batch, again and again."""
    training.batches = repeat(next(training.batches))


@mistake("loader_stuck", "batches_repeated")
def loader_stuck(training: Training) -> None:
    """From a third of the training on the loader yields the same batch."""
    stuck, kept = training.steps // 3, next(training.batches)
    change_batches(training, lambda step, batch: kept if step > stuck else batch)


@mistake("too_little_data")
def three_batches_of_data(training: Training) -> None:
    """There are no more rows than three batches hold."""
    rows = concatenate(list(islice(training.batches, 3)))
    training.batches = sampled(rows, len(rows[0]) // 3, source(3))


@mistake("duplicates_recited", "batches_repeated", "loader_stuck")
def rows_twice(training: Training) -> None:
    """Every row stands twice in its batch."""
    change_batches(training, lambda _, batch: tuple(torch.cat([column[::2], column[::2]]) for column in batch))


@mistake("batch_too_small", "learning_rate_too_high")
def batch_of_one(training: Training) -> None:
    """A batch has one row."""
    change_batches(training, lambda _, batch: picked(batch, torch.tensor([0])))
