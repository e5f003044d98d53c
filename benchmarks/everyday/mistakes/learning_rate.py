"""Learning rates and schedules that are wrong."""

from functools import partial
from itertools import chain

from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, LambdaLR, StepLR

from benchmarks.everyday.mistakes import TOKENS, mistake
from benchmarks.everyday.training import Training


def _multiply_rate(training: Training, factor: float) -> None:
    training.optimizer = partial(training.optimizer, lr=factor * training.optimizer.keywords["lr"])


@mistake("learning_rate_too_high", "missing_warmup")
def learning_rate_x10(training: Training) -> None:
    """The learning rate is 10 times as high."""
    _multiply_rate(training, 10)


@mistake("learning_rate_too_high", "missing_warmup")
def learning_rate_x30(training: Training) -> None:
    """The learning rate is 30 times as high."""
    _multiply_rate(training, 30)


@mistake("learning_rate_too_high", "missing_warmup")
def learning_rate_x100(training: Training) -> None:
    """The learning rate is 100 times as high."""
    _multiply_rate(training, 100)


@mistake("learning_rate_too_low")
def learning_rate_div100(training: Training) -> None:
    """The learning rate is 100 times too low."""
    _multiply_rate(training, 0.01)


@mistake("learning_rate_is_zero")
def learning_rate_zero(training: Training) -> None:
    """The learning rate is 0."""
    _multiply_rate(training, 0)


@mistake("learning_rate_too_high", tasks=TOKENS)
def embedding_rate_x100(training: Training) -> None:
    """The embeddings have a group of their own, with a learning rate 100 times as high."""
    tables = [module for module in training.model.modules() if isinstance(module, nn.Embedding)]
    embedded = list(chain.from_iterable(table.parameters() for table in tables))
    known = {id(parameter) for parameter in embedded}
    others = [parameter for parameter in training.model.parameters() if id(parameter) not in known]
    training.parameters = [{"params": embedded, "lr": 100 * training.optimizer.keywords["lr"]}, {"params": others}]


@mistake("schedule_horizon_wrong")
def decay_at_every_step(training: Training) -> None:
    """A decay by 0.9 that is meant for epochs is applied at every step."""
    training.schedule = partial(ExponentialLR, gamma=0.9)


@mistake("schedule_horizon_wrong", "learning_rate_too_low")
def step_size_in_batches(training: Training) -> None:
    """A decay by 0.3 after every 10 epochs is counted in steps."""
    training.schedule = partial(StepLR, step_size=10, gamma=0.3)


@mistake("warmup_never_ends", "learning_rate_too_low")
def warmup_too_long(training: Training) -> None:
    """The warmup takes 50,000 steps."""
    training.schedule = partial(LambdaLR, lr_lambda=lambda step: step / 50_000)


@mistake("learning_rate_changed", "learning_rate_too_high")
def learning_rate_jumps(training: Training) -> None:
    """Halfway the learning rate is set to 50 times what it was."""
    half = training.steps // 2
    training.schedule = partial(LambdaLR, lr_lambda=lambda step: 50 if step >= half else 1)
