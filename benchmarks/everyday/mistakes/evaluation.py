"""Validations that are wrong."""

from itertools import islice

from benchmarks.everyday.data import concatenate, sampled, source
from benchmarks.everyday.mistakes import BATCH_NORM, DROPOUT, NUMBERS, mistake
from benchmarks.everyday.training import Training


@mistake("evaluation_in_training_mode", tasks=(*BATCH_NORM, *DROPOUT))
def validated_in_training_mode(training: Training) -> None:
    """`model.eval` is not called before a validation."""
    training.evaluates_apart = False


@mistake("evaluation_changed", "data_distribution_shift", tasks=NUMBERS)
def validation_inputs_x20(training: Training) -> None:
    """The inputs of the validation are scaled otherwise, 20 times as large."""
    held_out = training.held_out or ()
    training.held_out = (20 * held_out[0], *held_out[1:])


@mistake("validation_leaks_into_training", flatters=True)
def validation_rows_in_training(training: Training) -> None:
    """The rows of the validation are among the few that are trained on."""
    rows = concatenate(list(islice(training.batches, 6)))
    size = len(rows[0]) // 6
    training.held_out = tuple(column[: 3 * size] for column in rows)
    training.batches = sampled(rows, size, source(3))
