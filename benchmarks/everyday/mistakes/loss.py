"""Losses that are wrong."""

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from benchmarks.everyday.mistakes.mistake import CLASSES, change_outputs, mistake
from benchmarks.everyday.training import Training


@mistake("softmax_applied_twice", "loss_function_misused", tasks=CLASSES)
def softmax_before_cross_entropy(training: Training) -> None:
    """Cross entropy, which takes logits, is given probabilities."""
    change_outputs(training, lambda logits: logits.softmax(-1))


@mistake("loss_reduced_by_sum")
def loss_summed(training: Training) -> None:
    """The loss is the sum over a batch."""
    assert isinstance(training.criterion, nn.CrossEntropyLoss | nn.MSELoss)
    training.criterion.reduction = "sum"


@mistake("loss_sign_flipped")
def loss_sign_flipped(training: Training) -> None:
    """The training maximizes its loss; the validation computes it as it should be."""
    right, held_out = training.criterion, training.held_out or ()
    training.evaluate = lambda: right(training.model(held_out[0]), held_out[-1])
    training.criterion = lambda outputs, targets: -right(outputs, targets)


@mistake("nonfinite_operation", "bad_batch", tasks=CLASSES)
def log_of_zero(training: Training) -> None:
    """The loss takes the logarithm of probabilities, of which from halfway on the small ones are cut to 0."""
    half, step = training.steps // 2, 0

    def begin(now: int) -> None:
        nonlocal step
        step = now

    def criterion(logits: Tensor, labels: Tensor) -> Tensor:
        probabilities = logits.softmax(-1).flatten(0, -2)
        if step > half:
            probabilities = F.threshold(probabilities, 0.01, 0.0)
        return -probabilities.gather(1, labels.reshape(-1, 1)).log().mean()

    training.begin, training.criterion = begin, criterion
