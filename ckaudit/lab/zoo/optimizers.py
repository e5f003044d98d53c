"""Optimizers and schedules of the zoo by name, and two optimizers that neither torch nor transformers have."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from ckaudit.lab.zoo.recipe import OptimizerName, Recipe, ScheduleName


class Lion(Optimizer):
    """Updates by the sign of averaged gradients (Chen et al. 2023, https://arxiv.org/abs/2302.06675)."""

    def __init__(self, params: Iterable[Tensor], *, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "betas": (0.9, 0.99), "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step, after the passes of a closure, which Lightning uses."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            mixed, kept = group["betas"]
            for weight in (weight for weight in group["params"] if weight.grad is not None):
                average = self.state[weight].setdefault("exp_avg", torch.zeros_like(weight))
                update = average.lerp(weight.grad, 1 - mixed).sign_()
                weight.mul_(1 - group["lr"] * group["weight_decay"]).add_(update, alpha=-group["lr"])
                average.lerp_(weight.grad, 1 - kept)
        return loss


class ScheduleFreeAdamW(Optimizer):
    r"""AdamW with averaged weights instead of a decaying learning rate (Defazio et al. 2024, https://arxiv.org/abs/2405.15682).

    $$y_t = (1-\beta_1) z_t + \beta_1 x_t,\quad z_{t+1} = z_t - \gamma\,(g_t / (\sqrt{\hat v_t} + \epsilon) + \lambda y_t),
    \quad x_{t+1} = (1 - c_{t+1}) x_t + c_{t+1} z_{t+1}$$

    with $c_{t+1} = \gamma_t^2 / \sum_{i \le t} \gamma_i^2$. The model holds y while it trains; `eval` replaces it by x, and
    `train` restores y.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "total": 0.0, "step": 0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Take a step, after the passes of a closure; the model must hold y."""
        loss = _evaluated(closure)
        for group in self.param_groups:
            rate, (mixed, kept) = group["lr"], group["betas"]
            group["step"] += 1
            group["total"] += rate**2
            share = rate**2 / group["total"] if group["total"] else 1.0
            unbiased = 1 - kept ** group["step"]
            for y in (weight for weight in group["params"] if weight.grad is not None):
                state = self.state[y]
                if not state:
                    state["z"], state["exp_avg_sq"] = y.clone(), torch.zeros_like(y)
                z, second = state["z"], state["exp_avg_sq"]
                x = (y - (1 - mixed) * z) / mixed
                second.mul_(kept).addcmul_(y.grad, y.grad, value=1 - kept)
                z.sub_(rate * (y.grad / ((second / unbiased).sqrt_() + group["eps"]) + group["weight_decay"] * y))
                y.copy_((1 - mixed) * z + mixed * x.lerp_(z, share))
        return loss

    @torch.no_grad()
    def _swap(self, factor: Callable[[float], float]) -> None:
        for group in self.param_groups:
            for weight in (weight for weight in group["params"] if weight in self.state):
                weight.lerp_(self.state[weight]["z"], factor(group["betas"][0]))

    def eval(self) -> None:
        """Put the averaged weights x into the model, for validating or saving."""
        self._swap(lambda mixed: 1 - 1 / mixed)

    def train(self) -> None:
        """Put the weights y, at which gradients are taken, back into the model."""
        self._swap(lambda mixed: 1 - mixed)


def _evaluated(closure: Callable[[], Any] | None) -> Any:
    with torch.enable_grad():
        return closure() if closure else None


def chosen(recipe: Recipe, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that the optimizer of a recipe holds, by name."""
    return [
        (name, parameter)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and (recipe.trained is None or recipe.trained(name))
    ]


def optimizers_of(recipe: Recipe, model: nn.Module) -> list[Optimizer]:
    """Return the optimizers of the trained parameters: one, except for Muon.

    Muon takes the matrices inside the model; AdamW takes embeddings, the head and everything else, as in its author's setup
    (https://kellerjordan.github.io/posts/muon/).
    """
    if recipe.optimizer != "muon":
        return [optimizer_of(recipe, model)]
    tables = {id(weight) for module in model.modules() if isinstance(module, nn.Embedding) for weight in module.parameters()}
    held = [weight for _, weight in chosen(recipe, model)]
    inner = [weight for weight in held if weight.dim() == 2 and id(weight) not in tables][:-1]  # the head is the last
    inside = {id(weight) for weight in inner}
    rest = [weight for weight in held if id(weight) not in inside]
    options: dict[str, Any] = {"lr": recipe.lr, "weight_decay": recipe.weight_decay}
    muon = [torch.optim.Muon(inner, **options, adjust_lr_fn="match_rms_adamw")] if inner else []
    return [*muon, torch.optim.AdamW(rest, **options)]


def optimizer_of(recipe: Recipe, model: nn.Module) -> Optimizer:
    """Return the single optimizer of the trained parameters."""
    groups = _groups(recipe, model)
    adam = {"eps": recipe.eps, "betas": recipe.betas}
    momentum = {"momentum": recipe.momentum}
    kinds: dict[OptimizerName, tuple[Callable[..., Optimizer], dict[str, Any]]] = {
        "adamw": (torch.optim.AdamW, adam),
        "adam": (torch.optim.Adam, adam),
        "nadam": (torch.optim.NAdam, adam),
        "radam": (torch.optim.RAdam, adam),
        "sgd": (torch.optim.SGD, momentum),
        "nesterov": (torch.optim.SGD, momentum | {"nesterov": True}),
        "rmsprop": (torch.optim.RMSprop, momentum),
        "adagrad": (torch.optim.Adagrad, {}),
        "lion": (Lion, {}),
        "schedule_free": (ScheduleFreeAdamW, adam),
    }
    if recipe.optimizer == "adafactor":  # torch's own takes a rate relative to the weights; this one takes the usual kind
        from transformers import Adafactor

        return Adafactor(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, scale_parameter=False, relative_step=False)
    make, options = kinds[recipe.optimizer]
    return make(groups, lr=recipe.lr, weight_decay=recipe.weight_decay, **options)


def _groups(recipe: Recipe, model: nn.Module) -> list[dict[str, Any]]:
    """Return a parameter group for each multiple of the learning rate."""
    groups: dict[float, list[nn.Parameter]] = {}
    for name, parameter in chosen(recipe, model):
        groups.setdefault(recipe.rate_of(name) if recipe.rate_of else 1.0, []).append(parameter)
    return [{"params": parameters, "lr": recipe.lr * multiple} for multiple, parameters in groups.items()]


def schedule_of(recipe: Recipe, optimizer: Optimizer) -> LambdaLR:
    """Return the schedule of the learning rate, per step."""
    end = max(1, round(recipe.horizon * recipe.steps))

    def factor(step: int) -> float:
        sudden = recipe.rate(step + 1) if recipe.rate else 1.0
        return sudden * _share_of_peak(recipe.schedule, step, end, recipe.warmup)

    return LambdaLR(optimizer, factor)


def _share_of_peak(schedule: ScheduleName, step: int, end: int, warmup: int) -> float:
    if schedule == "onecycle":
        peak = 0.3 * end
        if step < peak:
            return 0.04 + 0.96 * (1 - math.cos(math.pi * step / peak)) / 2
        return 1e-5 + (1 + math.cos(math.pi * min(1.0, (step - peak) / (end - peak)))) / 2
    if step < warmup:
        return (step + 1) / (warmup + 1)
    part = min(1.0, (step - warmup) / max(1, end - warmup))
    return {
        "constant": 1.0,
        "cosine": (1 + math.cos(math.pi * part)) / 2,
        "linear": 1 - part,
        "steps": 0.1 ** (int(part >= 0.5) + int(part >= 0.8)),
        "warmup_stable_decay": min(1.0, (1 - part) / 0.2),
    }[schedule]
