"""Losses that are wrong."""

from torch import Tensor, nn

from benchmarks.everyday.mistakes import CLASSES, change_outputs, mistake
from benchmarks.everyday.training import Training


@mistake("softmax_applied_twice", "loss_function_misused", tasks=CLASSES)
def softmax_before_cross_entropy(training: Training) -> None:
    """Cross entropy, which takes logits, is given probabilities."""
    change_outputs(training, lambda logits: logits.softmax(-1))


def _validate_as_before(training: Training) -> None:
    """Let the validation have the loss that the training has now."""
    right, held_out = training.criterion, training.held_out or ()
    training.evaluate = lambda: right(training.model(held_out[0]), held_out[-1])


@mistake("loss_reduced_by_sum", other_unit=True)
def loss_summed(training: Training) -> None:
    """The loss is the sum over a batch; that of the validation is a mean."""
    _validate_as_before(training)
    assert isinstance(training.criterion, nn.CrossEntropyLoss | nn.MSELoss)
    training.criterion = type(training.criterion)(reduction="sum")


@mistake("loss_sign_flipped")
def loss_sign_flipped(training: Training) -> None:
    """The training maximizes its loss; the validation computes it as it should be."""
    _validate_as_before(training)
    right = training.criterion
    training.criterion = lambda outputs, targets: -right(outputs, targets)


@mistake("nonfinite_operation", "bad_batch", tasks=CLASSES)
def log_of_zero(training: Training) -> None:
    """The loss takes the logarithm of probabilities, of which from halfway on a mask sets the small ones to 0."""
    half, step = training.steps // 2, 0

    def begin(now: int) -> None:
        nonlocal step
        step = now

    def criterion(logits: Tensor, labels: Tensor) -> Tensor:
        probabilities = logits.softmax(-1).flatten(0, -2)
        if step > half:
            probabilities = probabilities * (probabilities > 0.01)
        return -probabilities.gather(1, labels.reshape(-1, 1)).log().mean()

    training.begin, training.criterion = begin, criterion
