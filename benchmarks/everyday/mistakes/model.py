"""Models that are built or initialized wrongly."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from benchmarks.everyday.mistakes import DROPOUT, EVERY_TASK, RECURRENT, RELU, mistake
from benchmarks.everyday.models import Block, ResidualMlp, layers_of, middle_layer, middle_part, mlp
from benchmarks.everyday.training import Training

NOT_RECURRENT = tuple(name for name in EVERY_TASK if name not in RECURRENT)


def _matrices(model: nn.Module) -> list[Tensor]:
    return [parameter.data for parameter in model.parameters() if parameter.dim() > 1]


def _change_output(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Change what a module puts out, as a line behind its call would."""

    def hook(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return (change(output[0]), *output[1:]) if isinstance(output, tuple) else change(output)

    module.register_forward_hook(hook)


@mistake("init_too_large")
def initial_weights_x10(training: Training) -> None:
    """All initial weights are 10 times as large."""
    for weight in _matrices(training.model):
        weight.mul_(10)


@mistake("symmetry_not_broken", "init_too_small")
def initial_weights_zero(training: Training) -> None:
    """All initial weights are 0."""
    for weight in _matrices(training.model):
        weight.zero_()


@mistake("symmetry_not_broken", tasks=NOT_RECURRENT)
def initial_weights_constant(training: Training) -> None:
    """The initial weights of all layers are the same number."""
    for layer in layers_of(training.model):
        nn.init.constant_(layer.get_parameter("weight"), 0.02)


@mistake("dead_units", tasks=RELU)
def biases_of_minus_20(training: Training) -> None:
    """The biases of the first layer begin at -20, so that no ReLU behind it lets anything through."""
    nn.init.constant_(layers_of(training.model)[0].get_parameter("bias"), -20)


@mistake("dropout_too_high", tasks=DROPOUT)
def dropout_of_90_percent(training: Training) -> None:
    """Dropout leaves out nine of ten units: it was given the share to keep."""
    for module in training.model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.9


@mistake("gradient_path_cut")
def output_detached(training: Training) -> None:
    """What a block in the middle puts out is detached."""
    _change_output(middle_part(training.model), Tensor.detach)


@mistake("dead_path", tasks=NOT_RECURRENT)
def output_masked_away(training: Training) -> None:
    """What a layer in the middle puts out is multiplied by a mask that is 0 everywhere."""
    _change_output(middle_layer(training.model), lambda output: 0 * output)


@mistake("causal_mask_leaks", tasks=("gpt",), flatters=True)
def causal_mask_missing(training: Training) -> None:
    """The attention of a language model has no mask."""
    for module in training.model.modules():
        if isinstance(module, Block):
            module.causal = False


@mistake("normalization_missing", "init_too_large", tasks=("tabular",))
def deep_without_normalization(training: Training) -> None:
    """Twelve residual layers follow each other without any normalization, with large initial weights."""
    training.model = ResidualMlp(24, 6, depth=12, scale=0.25)


@mistake("saturating_activation", "residual_path_broken", tasks=("tabular",))
def deep_with_sigmoids(training: Training) -> None:
    """Eight layers have sigmoids between them."""
    training.model = mlp(24, *[64] * 7, 6, act=nn.Sigmoid)
