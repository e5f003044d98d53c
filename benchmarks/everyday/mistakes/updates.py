"""Optimizers and updates that are wrong, and programs that are started anew."""

from copy import deepcopy
from functools import partial

from torch import Tensor, nn
from torch.optim import SGD, AdamW

from benchmarks.everyday.mistakes import ADAM_TASKS, change_inputs, change_outputs, mistake
from benchmarks.everyday.models import middle_layer
from benchmarks.everyday.training import Training


@mistake("gradients_not_zeroed")
def gradients_not_zeroed(training: Training) -> None:
    """`zero_grad` is never called."""
    training.zeroes = False


@mistake("updates_not_applied")
def updates_stop(training: Training) -> None:
    """From halfway on `optimizer.step` is not called."""
    half = training.steps // 2
    training.updates = lambda step: step <= half


@mistake("not_in_optimizer")
def layer_not_in_optimizer(training: Training) -> None:
    """The optimizer is not given a layer in the middle."""
    left_out = {id(parameter) for parameter in middle_layer(training.model).parameters()}
    training.parameters = [parameter for parameter in training.model.parameters() if id(parameter) not in left_out]


@mistake("not_in_optimizer")
def head_alone_in_optimizer(training: Training) -> None:
    """The optimizer is given the last module alone."""
    *_, head = training.model.children()
    training.parameters = list(head.parameters())


@mistake("frozen_by_mistake")
def layer_frozen(training: Training) -> None:
    """A layer in the middle does not require gradients."""
    for parameter in middle_layer(training.model).parameters():
        parameter.requires_grad_(False)


@mistake("weight_decay_too_high")
def weight_decay_huge(training: Training) -> None:
    """The weight decay is some thousand times as high as usual."""
    decays: dict[object, float] = {SGD: 0.3, AdamW: 30.0}
    training.optimizer = partial(training.optimizer, weight_decay=decays.get(training.optimizer.func, 0.5))


@mistake("adam_epsilon_too_large", tasks=ADAM_TASKS)
def epsilon_of_one(training: Training) -> None:
    """Adam's epsilon is 1."""
    training.optimizer = partial(training.optimizer, eps=1.0)


@mistake("clip_limit_too_low")
def clipped_to_nothing(training: Training) -> None:
    """Gradients are clipped to a norm at which nothing is learnt."""
    training.clip = 1e-4 if training.optimizer.func is SGD else 1e-9


@mistake("loss_reduced_by_sum", "learning_rate_too_high", other_unit=True)
def accumulated_loss_not_divided(training: Training) -> None:
    """The gradients of eight batches are added, and their losses are not divided by eight."""
    training.accumulate, training.averages = 8, False


@mistake("updates_lost_to_rounding")
def bfloat16_weights(training: Training) -> None:
    """The weights themselves are bfloat16, without a copy in full precision."""
    training.model.bfloat16()
    change_inputs(training, lambda inputs: inputs.bfloat16() if inputs.is_floating_point() else inputs)
    change_outputs(training, Tensor.float)


def _weight_of_middle_layer(training: Training) -> nn.Parameter:
    return next(middle_layer(training.model).parameters())


@mistake("weights_changed_outside_optimizer")
def weights_drawn_again(training: Training) -> None:
    """Halfway the weights of a layer in the middle are drawn again, far too large."""
    weight, half = _weight_of_middle_layer(training), training.steps // 2

    def begin(step: int) -> None:
        if step == half:
            nn.init.normal_(weight, std=0.3)

    training.begin = begin


@mistake("weights_changed_outside_optimizer")
def weights_zeroed(training: Training) -> None:
    """Halfway the weights of a layer in the middle are set to 0."""
    weight, half = _weight_of_middle_layer(training), training.steps // 2

    def begin(step: int) -> None:
        if step == half:
            nn.init.zeros_(weight)

    training.begin = begin


@mistake("optimizer_state_lost", tasks=ADAM_TASKS)
def resumed_without_optimizer_state(training: Training) -> None:
    """Halfway the program is started anew with the weights, without what the optimizer had gathered."""
    training.stop = training.steps // 2


@mistake("weights_not_restored")
def resumed_without_weights(training: Training) -> None:
    """Halfway the program is started anew, and the weights of the checkpoint are not loaded."""
    training.stop, first = training.steps // 2, deepcopy(training.model.state_dict())

    def restart() -> None:
        training.model.load_state_dict(first)

    training.restart = restart
