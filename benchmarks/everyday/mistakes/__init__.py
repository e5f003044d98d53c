"""Everyday mistakes: a function for each, which changes the parts of a training before it runs.

Here is what a mistake is, to which tasks it can be made, and what several of them change.
"""

from collections.abc import Callable, Collection

from msgspec import Struct
from torch import Tensor

from benchmarks.everyday.data import Batch
from benchmarks.everyday.tasks import TASKS
from benchmarks.everyday.training import Training

EVERY_TASK = tuple(TASKS)
TRANSFORMERS = ("vit", "gpt")
RECURRENT = ("gru", "lstm")
TOKENS = ("gpt", "gru")  # their inputs are numbers of words
NUMBERS = tuple(name for name in TASKS if name not in TOKENS)
TARGETS = tuple(name for name in TASKS if name != "autoencoder")  # it has nothing but inputs
CLASSES = tuple(name for name in TARGETS if name != "regression")
SGD_TASKS = ("cnn", "resnet", "mlp_sgd")
ADAM_TASKS = tuple(name for name in TASKS if name not in SGD_TASKS)
RELU = ("plain_cnn", "mlp", "mlp_sgd", "tabular", "autoencoder")  # without a norm in front
DROPOUT = ("plain_cnn", "vit", "gru", "tabular")
BATCH_NORM = ("cnn", "resnet")


class Mistake(Struct, frozen=True):
    """One mistake.

    Attributes:
        name: The function's name.
        about: What is wrong, in a few words.
        causes: Causes that are right for it.
        tasks: Tasks to which it can be made.
        flatters: Whether it makes the loss look better than it is, so that a loss that is too low is an effect of it too.
        other_unit: Whether the training loss is in another unit than that of the healthy training, so that the validation
            alone tells whether it has an effect.
        make: Changes a training.
    """

    name: str
    about: str
    causes: tuple[str, ...]
    tasks: tuple[str, ...]
    flatters: bool
    other_unit: bool
    make: Callable[[Training], None]


MISTAKES: dict[str, Mistake] = {}


def mistake(
    *causes: str, tasks: Collection[str] = EVERY_TASK, flatters: bool = False, other_unit: bool = False
) -> Callable[[Callable[[Training], None]], Mistake]:
    """Enter a function into the list of mistakes, with the causes that are right for it."""

    def enter(make: Callable[[Training], None]) -> Mistake:
        about = (make.__doc__ or "").partition("\n")[0].rstrip(".")
        found = Mistake(make.__name__, about, causes, tuple(tasks), flatters, other_unit, make)
        if MISTAKES.setdefault(found.name, found) is not found:
            raise ValueError(f"there are two mistakes named {found.name}")
        return found

    return enter


def change_inputs(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Change all inputs, to train on and to validate on."""
    training.batches = ((change(batch[0]), *batch[1:]) for batch in training.batches)
    if training.held_out:
        training.held_out = (change(training.held_out[0]), *training.held_out[1:])


def change_outputs(training: Training, change: Callable[[Tensor], Tensor]) -> None:
    """Change what the loss is given of the model, in the training and in its validation."""
    criterion = training.criterion
    training.criterion = lambda outputs, targets: criterion(change(outputs), targets)


def change_batches(training: Training, change: Callable[[int, Batch], Batch]) -> None:
    """Change the batches to train on, given the number of their step too."""
    training.batches = (change(step, batch) for step, batch in enumerate(training.batches, 1))


def mistakes() -> dict[str, Mistake]:
    """Return every mistake by name."""
    from benchmarks.everyday.mistakes import batches, evaluation, learning_rate, loss, model, updates  # noqa: F401  they register

    return dict(MISTAKES)
