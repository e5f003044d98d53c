"""Ways to damage a training of any family, through hooks that need only a model's parameters and modules."""

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.lab.zoo.recipe import Batch, Loss, Recipe, classified, mixed_up, own_loss
from ckaudit.lab.zoo.sequence_models import next_token_loss, translation_loss
from ckaudit.lab.zoo.table_models import node_loss
from ckaudit.recorder.drill.damage import Act, DrillStrength, detached, is_masked, middle_part, part_of


@cache
def looked_at(make: Callable[[], nn.Module]) -> nn.Module:
    """Return a model of a recipe for inspection; its structure does not depend on the random seed."""
    return make()


# Faults of weights and gradients at one step, or at every step from it on.


def gradient_hook(onset: int, act: Act, *, always: bool = False) -> Callable[[nn.Module, Optimizer, int], None]:
    """Return a hook that acts on the model after the backward pass of one step, or of every step from it on."""

    @torch.no_grad()
    def gradients(model: nn.Module, _optimizer: Optimizer, step: int) -> None:
        if step == onset or (always and step > onset):
            act(model)

    return gradients


def once(act: Act) -> Callable[[Recipe, DrillStrength], Recipe]:
    """Return a change of recipes that acts on the model once, at the onset."""
    return lambda healthy, amount: replace(healthy, gradients=gradient_hook(amount.onset, act))


def underflow(scale: float) -> Act:
    """Return an act that rounds gradients to float16 at a scale, as without a loss scale: small ones become zero."""

    def act(model: nn.Module) -> None:
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.copy_((weight.grad * scale).half() / scale)

    return act


# Faults of the model.
def built(healthy: Recipe, act: Act) -> Recipe:
    """Return a recipe that acts on the model once it is built."""

    def model() -> nn.Module:
        damaged = healthy.model()
        with torch.no_grad():
            act(damaged)
        return damaged

    return replace(healthy, model=model)


def has_parts_within(recipe: Recipe) -> bool:
    """Tell whether the middle module is more than one layer."""
    model = looked_at(recipe.model)
    return bool(list(model.get_submodule(middle_part(model)).children()))


def detach_part(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Detach the output of the middle module."""

    def cut(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        return detached(output)

    return built(healthy, lambda model: model.get_submodule(middle_part(model)).register_forward_hook(cut))


def has_module(is_wanted: Callable[[nn.Module], bool]) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model has a given kind of module."""
    return lambda recipe: any(is_wanted(module) for module in looked_at(recipe.model).modules())


def reads_causally(recipe: Recipe) -> bool:
    """Tell whether a family predicts the next token with attention that takes a causal mask."""
    masked = [module for module in looked_at(recipe.model).modules() if is_masked(module)]
    own = any(not isinstance(module, nn.MultiheadAttention) for module in masked)
    return own or (bool(masked) and recipe.loss in (next_token_loss, translation_loss))


def make_units_alike(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Set every matrix of the middle module to one number, so that all its units learn the same."""

    def act(model: nn.Module) -> None:
        for _, weight in part_of(model):
            if weight.dim() >= 2:
                weight.fill_(float(weight.std()))

    return built(healthy, act)


def apply_softmax(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Let the model output probabilities, to which the loss applies softmax again."""

    def act(model: nn.Module) -> None:
        module = head_of(model)
        if module is not None:
            module.register_forward_hook(lambda _module, _inputs, output: output.softmax(-1))

    return built(healthy, act)


LOSSES_OF_LOGITS = (own_loss, classified, mixed_up, next_token_loss, translation_loss, node_loss)


def head_of(model: nn.Module) -> nn.Module | None:
    """Return the module that outputs logits: the model's own attribute for it, or a module of that name; None: neither."""
    if own_head := getattr(model, "get_output_embeddings", lambda: None)():
        head: nn.Module = own_head
        return head
    return next((module for name, module in model.named_modules() if name in ("head", "classifier", "lm_head")), None)


def ends_in_softmax(recipe: Recipe) -> bool:
    """Tell whether the loss applies softmax to the output of a head."""
    return getattr(recipe.loss, "func", recipe.loss) in LOSSES_OF_LOGITS and head_of(looked_at(recipe.model)) is not None


def summed(loss: Loss, batch: int) -> Loss:
    """Return a loss that is the sum over the rows of a batch instead of their mean; validation uses the mean."""
    return lambda model, columns: loss(model, columns) * (batch if model.training else 1)


def keep_weights_in(kind: torch.dtype) -> Callable[[Recipe, DrillStrength], Recipe]:
    """Return a change of recipes that keeps the weights, and so the optimizer state, in half precision."""

    def cast(value: Any) -> Any:
        return value.to(kind) if isinstance(value, Tensor) and value.is_floating_point() else value

    def before(_module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return tuple(map(cast, inputs)), {name: cast(value) for name, value in named.items()}

    def act(model: nn.Module) -> None:
        model.to(kind)
        model.register_forward_pre_hook(before, with_kwargs=True)

    return lambda healthy, _: built(healthy, act)


def runs_in(kind: torch.dtype) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model can run both passes with weights in half precision."""
    return lambda recipe: _runs(recipe, keep_weights_in(kind)(recipe, DrillStrength(1, 0.5)).model(), None)


def runs_under(kind: torch.dtype) -> Callable[[Recipe], bool]:
    """Return a test of recipes: whether their model can run both passes under autocast in half precision."""
    return lambda recipe: _runs(recipe, recipe.model(), kind)


def _runs(recipe: Recipe, model: nn.Module, kind: torch.dtype | None) -> bool:
    try:
        with torch.autocast("cpu", kind, enabled=kind is not None):
            loss = recipe.loss(model, _few(recipe))
            loss = loss + recipe.opponent.loss(model, _few(recipe)) if recipe.opponent else loss
        loss.backward()
    except (RuntimeError, TypeError, ValueError):  # it creates float32 tensors, uses another trainer, or has no such kernel
        return False
    return True


def _few(recipe: Recipe) -> Batch:
    return recipe.rows(torch.Generator().manual_seed(0), 4)


# Faults of the optimizer.
def change_rate(amount: DrillStrength, factor: float) -> Callable[[int], float]:
    """Return the multiple of the learning rate by step: `factor` from the onset on."""
    return lambda step: factor if step >= amount.onset else 1.0


def leave_part_out_of_optimizer(healthy: Recipe, _amount: DrillStrength) -> Recipe:
    """Give the optimizer all parameters except the middle module."""
    left_out: set[str] = set()

    def note(model: nn.Module) -> None:
        left_out.update(name for name, _ in part_of(model))

    held = healthy.trained or (lambda _: True)
    return replace(built(healthy, note), trained=lambda name: name not in left_out and held(name))


def is_adam(recipe: Recipe) -> bool:
    """Tell whether the optimizer divides by a second moment and has an epsilon."""
    return recipe.optimizer in ("adamw", "adam", "nadam", "radam")


def has_momentum(recipe: Recipe) -> bool:
    """Tell whether the optimizer has state that a resume can lose."""
    return is_adam(recipe) or recipe.momentum > 0


def creep_up(amount: DrillStrength, steps: int, factor: float) -> Callable[[int], float]:
    """Return the multiple of the learning rate by step: from the onset on it grows exponentially to `factor`."""
    left = max(1, steps - amount.onset)
    return lambda step: factor ** max(0.0, (step - amount.onset) / left)


QUERY_OR_KEY = re.compile(
    r"(^|[._])(q|k|query|key|[qk]_proj|(query|key)_proj|c_attn|in_proj_weight|query_key_value|[qk]_lin)[._]"
)


def has_queries(recipe: Recipe) -> bool:
    """Tell whether a model has query and key weights, by their names."""
    trained = [name for name, weight in looked_at(recipe.model).named_parameters() if weight.requires_grad]
    return recipe.optimizer != "muon" and any(QUERY_OR_KEY.search(f"{name}.") for name in trained)


def hurry_queries(healthy: Recipe, amount: DrillStrength) -> Recipe:
    """Let queries and keys learn many times faster than the rest, so that their logits keep growing."""
    factor = amount.between(10, 40)
    return replace(healthy, rate_of=lambda name: factor if QUERY_OR_KEY.search(f"{name}.") else 1.0)
