"""Ways to damage a training of any family, through hooks that ask nothing of a model but its parameters and modules."""

import re
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.lab.zoo.recipe import Batch, Loss, Recipe, classified, mixed_up, own_loss
from ckaudit.lab.zoo.sequence_models import next_token_loss, translation_loss
from ckaudit.lab.zoo.table_models import node_loss


class Amount(Struct, frozen=True):
    """How a fault is done.

    Attributes:
        onset: First step at which it acts, where it comes in the middle of a training.
        strength: How strong it is, from 0 (the weakest) to 1.
    """

    onset: int
    strength: float

    def between(self, low: float, high: float) -> float:
        """Return a factor between two, evenly in its logarithm.

        >>> round(Amount(1, 0.5).between(10, 1000))
        100
        """
        return low * (high / low) ** self.strength


def matrices(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are matrices or filters."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.dim() >= 2]


def middle_matrix(model: nn.Module) -> tuple[str, nn.Parameter]:
    """Return the matrix in the middle of the model; embeddings are left out where there is another, frozen ones always."""
    trained = [(name, weight) for name, weight in matrices(model) if weight.requires_grad]
    inner = [(name, weight) for name, weight in trained if "emb" not in name] or trained
    return inner[len(inner) // 2]


def middle_part(model: nn.Module) -> str:
    """Return the name of the module around the matrix in the middle: an attention, an MLP, or one layer where it stands alone."""
    name = middle_matrix(model)[0]
    module = name.partition(".parametrizations.")[0] if ".parametrizations." in name else name.rpartition(".")[0]
    around = module.rpartition(".")[0]
    whole = sum(weight.numel() for weight in model.parameters())
    size = sum(weight.numel() for weight in model.get_submodule(around).parameters()) if around else whole
    return around if size < whole / 2 else module


def part_of(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters of the part in the middle."""
    prefix = middle_part(model)
    return [(name, weight) for name, weight in model.named_parameters() if name.startswith(prefix + ".")]


@cache
def looked_at(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a model of a recipe that is never trained: what it is made of does not depend on chance."""
    return make()


# Faults of weights and gradients at one step, or at each from it on.
Act = Callable[[nn.Module], object]


def gradient_hook(onset: int, act: Act, *, always: bool = False) -> Callable[[nn.Module, Optimizer, int], None]:
    """Return a hook that acts on the model after the backward pass of one step, or of each from it on."""

    @torch.no_grad()
    def gradients(model: nn.Module, _optimizer: Optimizer, step: int) -> None:
        if step == onset or (always and step > onset):
            act(model)

    return gradients


def once(act: Act) -> Callable[[Recipe, Amount], Recipe]:
    """Return a change of recipes that acts on the model once, at the onset."""
    return lambda healthy, amount: replace(healthy, gradients=gradient_hook(amount.onset, act))


def draw_part_anew(model: nn.Module) -> None:
    """Initialise the matrices of the part in the middle anew, as large as they are."""
    for _, weight in part_of(model):
        if weight.dim() >= 2:
            weight.copy_(torch.randn_like(weight) * weight.std())


def zero_matrix(model: nn.Module) -> None:
    """Set the matrix in the middle to zero."""
    middle_matrix(model)[1].zero_()


def zero_half_of_matrix(model: nn.Module) -> None:
    """Set half of the rows of the matrix in the middle to zero."""
    weight = middle_matrix(model)[1]
    weight[: len(weight) // 2].zero_()


def multiply_weights(model: nn.Module) -> None:
    """Multiply all matrices by five."""
    for _, weight in matrices(model):
        weight.mul_(5.0)


def spoil_gradient(model: nn.Module) -> None:
    """Write NaN into a row of the gradient of the matrix in the middle."""
    gradient = middle_matrix(model)[1].grad
    if gradient is not None:
        gradient[0] = torch.nan


def lose_gradients(model: nn.Module) -> None:
    """Throw the gradients of the part in the middle away."""
    for _, weight in part_of(model):
        weight.grad = None


def flip_gradients(model: nn.Module) -> None:
    """Turn all gradients round."""
    for weight in model.parameters():
        if weight.grad is not None:
            weight.grad.neg_()


def underflow(scale: float) -> Act:
    """Return an act that passes gradients through float16 at a scale, as without a loss scale: what is small becomes zero."""

    def act(model: nn.Module) -> None:
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.copy_((weight.grad * scale).half() / scale)

    return act


# Faults of the model.
def _built(healthy: Recipe, act: Act) -> Recipe:
    def model() -> nn.Module:
        made = healthy.model()
        with torch.no_grad():
            act(made)
        return made

    return replace(healthy, model=model)


def scale_initial_weights(healthy: Recipe, scale: float) -> Recipe:
    """Multiply the initial matrices that are trained."""

    def act(model: nn.Module) -> None:
        for _, weight in matrices(model):
            if weight.requires_grad:
                weight.mul_(scale)

    return _built(healthy, act)


def freeze_part(healthy: Recipe, _amount: Amount) -> Recipe:
    """Let the part in the middle ask for no gradient."""

    def act(model: nn.Module) -> None:
        for _, weight in part_of(model):
            weight.requires_grad = False

    return _built(healthy, act)


def has_parts_within(recipe: Recipe) -> bool:
    """Tell whether the part in the middle is more than one layer."""
    model = looked_at(recipe.model)
    return bool(list(model.get_submodule(middle_part(model)).children()))


def detach_part(healthy: Recipe, _amount: Amount) -> Recipe:
    """Detach what the part in the middle puts out."""

    def cut(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return output.detach() if isinstance(output, Tensor) else (output[0].detach(), *output[1:])

    return _built(healthy, lambda model: model.get_submodule(middle_part(model)).register_forward_hook(cut))


def _replaced(model: nn.Module, is_wanted: Callable[[nn.Module], bool], make: Callable[[], nn.Module]) -> None:
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if is_wanted(child):
                setattr(module, name, make())


def is_norm(module: nn.Module) -> bool:
    """Tell whether a module is a normalisation with a scale."""
    return "norm" in type(module).__name__.lower() and sum(weight.dim() == 1 for weight in module.parameters()) > 0


def is_activation(module: nn.Module) -> bool:
    """Tell whether a module is an activation function that is not bounded."""
    kind = type(module).__name__.lower()
    return not list(module.children()) and any(word in kind for word in ("relu", "gelu", "silu", "activation"))


def has_module(is_wanted: Callable[[nn.Module], bool]) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model has such a module."""
    return lambda recipe: any(is_wanted(module) for module in looked_at(recipe.model).modules())


class Saturated(nn.Module):
    """A sigmoid that is driven far into its flat ends."""

    def forward(self, x: Tensor) -> Tensor:
        """Map any tensor to one of its shape."""
        return torch.sigmoid(20 * x)


def leave_norms_out(healthy: Recipe, _amount: Amount) -> Recipe:
    """Replace every normalisation by nothing."""
    return _built(healthy, lambda model: _replaced(model, is_norm, nn.Identity))


def saturate_activations(healthy: Recipe, _amount: Amount) -> Recipe:
    """Replace every activation function by a sigmoid that is flat nearly everywhere."""
    return _built(healthy, lambda model: _replaced(model, is_activation, Saturated))


def is_dropout(module: nn.Module) -> bool:
    """Tell whether a module drops values out."""
    return isinstance(module, nn.Dropout)


def raise_dropout(healthy: Recipe, amount: Amount) -> Recipe:
    """Raise every dropout."""
    share = 0.7 + 0.25 * amount.strength
    return _built(healthy, lambda model: _replaced(model, is_dropout, lambda: nn.Dropout(share)))


def kill_units(healthy: Recipe, _amount: Amount) -> Recipe:
    """Push nine in ten units before a ReLU below zero."""

    def act(model: nn.Module) -> None:
        layers = list(model.modules())
        for layer, after in pairwise(layers):
            if isinstance(layer, nn.Linear | nn.Conv2d | nn.BatchNorm2d | nn.BatchNorm1d) and isinstance(after, nn.ReLU):
                bias: Tensor = layer.bias  # type: ignore[assignment]
                bias[: len(bias) * 9 // 10].fill_(-20.0)

    return _built(healthy, act)


def make_units_alike(healthy: Recipe, _amount: Amount) -> Recipe:
    """Set every matrix of the part in the middle to one number, so that its units learn the same."""

    def act(model: nn.Module) -> None:
        for _, weight in part_of(model):
            if weight.dim() >= 2:
                weight.fill_(float(weight.std()))

    return _built(healthy, act)


def apply_softmax(healthy: Recipe, _amount: Amount) -> Recipe:
    """Let the model put out probabilities, of which the loss takes a softmax again."""

    def act(model: nn.Module) -> None:
        module = head_of(model)
        if module is not None:
            module.register_forward_hook(lambda _module, _inputs, output: output.softmax(-1))

    return _built(healthy, act)


LOSSES_OF_LOGITS = (own_loss, classified, mixed_up, next_token_loss, translation_loss, node_loss)


def head_of(model: nn.Module) -> nn.Module | None:
    """Return what puts out logits: the model's own word for it, or a module of that name; None: neither."""
    if said := getattr(model, "get_output_embeddings", lambda: None)():
        found: nn.Module = said
        return found
    return next((module for name, module in model.named_modules() if name in ("head", "classifier", "lm_head")), None)


def ends_in_softmax(recipe: Recipe) -> bool:
    """Tell whether the loss takes the softmax of what a head puts out."""
    return getattr(recipe.loss, "func", recipe.loss) in LOSSES_OF_LOGITS and head_of(looked_at(recipe.model)) is not None


def summed(loss: Loss, batch: int) -> Loss:
    """Return a loss that is the sum over the rows of a batch in place of their mean; a validation takes the mean."""
    return lambda model, columns: loss(model, columns) * (batch if model.training else 1)


def keep_weights_in(kind: torch.dtype) -> Callable[[Recipe, Amount], Recipe]:
    """Return a change of recipes that keeps the weights, and so the optimizer's state, in half precision."""

    def cast(value: Any) -> Any:
        return value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value

    def before(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(cast, inputs)), {name: cast(value) for name, value in named.items()}

    def act(model: nn.Module) -> None:
        model.to(kind)
        model.register_forward_pre_hook(before, with_kwargs=True)

    return lambda healthy, _: _built(healthy, act)


def runs_in(kind: torch.dtype) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model goes forward and back with weights in half precision."""
    return lambda recipe: _runs(recipe, keep_weights_in(kind)(recipe, Amount(1, 0.5)).model(), None)


def runs_under_float16(recipe: Recipe) -> bool:
    """Tell whether a model goes forward and back under autocast in float16, in a loop of the user's own."""
    return _runs(recipe, recipe.model(), torch.float16)


def _runs(recipe: Recipe, model: nn.Module, kind: torch.dtype | None) -> bool:
    try:
        with torch.autocast("cpu", kind, enabled=kind is not None):
            loss = recipe.loss(model, _few(recipe))
        loss.backward()
    except (RuntimeError, TypeError, ValueError):  # it makes float32 of its own, asks for another trainer, or has no such kernel
        return False
    return True


def _few(recipe: Recipe) -> Batch:
    return recipe.rows(torch.Generator().manual_seed(0), 4)


# Faults of the optimizer.
def change_rate(amount: Amount, factor: float) -> Callable[[int], float]:
    """Return the multiple of the learning rate: from the onset on a factor."""
    return lambda step: factor if step >= amount.onset else 1.0


def leave_part_out_of_optimizer(healthy: Recipe, _amount: Amount) -> Recipe:
    """Hand the optimizer all but the part in the middle."""
    left_out: set[str] = set()

    def note(model: nn.Module) -> None:
        left_out.update(name for name, _ in part_of(model))

    held = healthy.trained or (lambda _: True)
    return replace(_built(healthy, note), trained=lambda name: name not in left_out and held(name))


def is_adam(recipe: Recipe) -> bool:
    """Tell whether the optimizer is of the kind that divides by a second moment and has an epsilon."""
    return recipe.optimizer in ("adamw", "adam", "nadam", "radam")


def has_momentum(recipe: Recipe) -> bool:
    """Tell whether the optimizer has a state that a resume can lose."""
    return is_adam(recipe) or recipe.momentum > 0


def creep_up(amount: Amount, steps: int, factor: float) -> Callable[[int], float]:
    """Return the multiple of the learning rate: from the onset on it grows evenly, in its logarithm, to a factor."""
    left = max(1, steps - amount.onset)
    return lambda step: factor ** max(0.0, (step - amount.onset) / left)


QUERY_OR_KEY = re.compile(
    r"(^|[._])(q|k|query|key|[qk]_proj|(query|key)_proj|c_attn|in_proj_weight|query_key_value|[qk]_lin)[._]"
)


def has_queries(recipe: Recipe) -> bool:
    """Tell whether a model has weights of queries and keys by their names."""
    trained = [name for name, weight in looked_at(recipe.model).named_parameters() if weight.requires_grad]
    return recipe.optimizer != "muon" and any(QUERY_OR_KEY.search(f"{name}.") for name in trained)


def hurry_queries(healthy: Recipe, amount: Amount) -> Recipe:
    """Let queries and keys learn many times faster than the rest, so that their logits grow and grow."""
    factor = amount.between(10, 40)
    return replace(healthy, rate_of=lambda name: factor if QUERY_OR_KEY.search(f"{name}.") else 1.0)
