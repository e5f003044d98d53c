"""How each fault of a drill is injected into a running training: at its onset, at every step from then on, or at the start."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ckaudit.recorder.checks.side_effect_free import with_changed_batch
from ckaudit.recorder.drill import damage
from ckaudit.recorder.drill.damage import Act, DrillStrength

NO_OPTIMIZER = "the recorder was not given the optimizer: Recorder(model, run, optimizer=optimizer)"
NO_LOADER = "no batch came from a torch DataLoader while the model was in training mode"
TARGETS = ("labels", "label", "y", "target", "targets", 1)  # by name in a mapping, the second of a pair


class FaultNotPossibleError(Exception):
    """This fault cannot be injected into this training; the message says why."""


class DrilledTraining:
    """The training that a fault is injected into, as its recorder sees it.

    Args:
        model: The model, without wrappers.
        optimizers: The optimizers that the recorder knows, without wrappers.
        amount: Onset and strength of the fault.
        seed: Seed of the fault's random numbers.

    Attributes:
        source: Generator of the fault, so that the training draws the same random numbers as its healthy twin.
        step: The current step, counted from the recorder's start.
        acted: The first step at which the fault acted; None: not yet.
        before_step: Actions between two steps.
        after_backward: Actions once per step, after its backward passes.
        is_resumed: Whether the current step begins a new session, as after a resume.
        missing: Message if the fault never acted.
    """

    def __init__(self, model: nn.Module, optimizers: Sequence[Optimizer], amount: DrillStrength, seed: int = 0) -> None:
        self.model, self.amount, self._optimizers = model, amount, optimizers
        self.source = torch.Generator().manual_seed(seed)
        self.step = 1
        self.acted: int | None = None
        self.before_step: list[Callable[[], None]] = []
        self.after_backward: list[Callable[[], None]] = []
        self.is_resumed = False
        self.missing = "its place in the training was never reached"

    @property
    def is_due(self) -> bool:
        """Whether the current step is the onset or a later one."""
        return self.step >= self.amount.onset

    @property
    def optimizers(self) -> Sequence[Optimizer]:
        """The optimizers.

        Raises:
            FaultNotPossibleError: If there is none.
        """
        if not self._optimizers:
            raise FaultNotPossibleError(NO_OPTIMIZER)
        return self._optimizers

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers."""
        return [group for optimizer in self.optimizers for group in optimizer.param_groups]

    def note(self) -> None:
        """Remember that the fault acted."""
        if self.acted is None:
            self.acted = self.step


FaultAction = Callable[[DrilledTraining], None]


# Damage to weights and gradients.
def once(act: Act) -> FaultAction:
    """Return a fault that acts on the model once, after the backward passes of the onset."""
    return _each(act, lambda target: target.step == target.amount.onset)


def always(act: Act) -> FaultAction:
    """Return a fault that acts on the model after the backward passes of every step from the onset on."""
    return _each(act, lambda target: target.is_due)


def _each(act: Act, is_time: Callable[[DrilledTraining], bool]) -> FaultAction:
    def do(target: DrilledTraining) -> None:
        def after_backward() -> None:
            if is_time(target) and act(target.model) is not False:
                target.note()

        target.missing = "there was no gradient where PyTorch keeps it"
        target.after_backward.append(after_backward)

    return do


# Damage to the model before its first step.
def at_start(act: Callable[[nn.Module, DrillStrength], object], nothing: str = "") -> FaultAction:
    """Return a fault that acts on the model at once; if an act that counts finds nothing, the fault is refused with `nothing`."""

    def do(target: DrilledTraining) -> None:
        if act(target.model, target.amount) == 0 and nothing:
            raise FaultNotPossibleError(nothing)
        target.note()

    return do


def detach_part(target: DrilledTraining) -> None:
    """Detach the output of the middle module."""

    def cut(_module: nn.Module, _inputs: Any, output: Any) -> Any:
        if not torch.is_grad_enabled():
            return output
        target.note()
        return damage.detached(output)

    target.missing = "the part in the middle is called from inside another, not as a module"
    target.model.get_submodule(damage.middle_part(target.model)).register_forward_hook(cut)


# Damage to the optimizer.
def multiply_rate(factor: Callable[[DrillStrength], float]) -> FaultAction:
    """Return a fault that updates with a multiple of the learning rate from the onset on; the schedule sees its own rate."""

    def do(target: DrilledTraining) -> None:
        planned: dict[int, list[Any]] = {}

        def before(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            if target.is_due:
                planned[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
                for group in optimizer.param_groups:
                    group["lr"] = group["lr"] * factor(target.amount)
                target.note()

        def after(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
            for group, rate in zip(optimizer.param_groups, planned.pop(id(optimizer), ()), strict=False):
                group["lr"] = rate

        for optimizer in target.optimizers:
            optimizer.register_step_pre_hook(before)
            optimizer.register_step_post_hook(after)

    return do


def set_option(name: str, value: Callable[[DrillStrength, dict[str, Any]], float]) -> FaultAction:
    """Return a fault that sets an option of every parameter group that has it, before the first step."""

    def do(target: DrilledTraining) -> None:
        having = [group for group in target.groups if name in group]
        if not having:
            raise FaultNotPossibleError(f"the optimizer has no {name}")
        for group in having:
            group[name] = value(target.amount, group)
        target.note()

    return do


def strong_decay(amount: DrillStrength, group: Mapping[str, Any], *, least: float = 0.01, most: float = 0.1) -> float:
    """Return the weight decay that shrinks each weight by a share per step, `least` to `most`, at the schedule's base rate.

    Raises:
        FaultNotPossibleError: If the learning rate is zero.
    """
    rate = float(group.get("initial_lr", group["lr"]))
    if not rate:
        raise FaultNotPossibleError("the learning rate is zero, so that no weight decay acts")
    return amount.between(least, most) / rate


def leave_part_out(target: DrilledTraining) -> None:
    """Remove the middle module from the optimizer's parameter groups."""
    left_out = {id(weight) for _, weight in damage.part_of(target.model)}
    for group in target.groups:
        group["params"] = [weight for weight in group["params"] if id(weight) not in left_out]
    target.note()


def leave_updates_out(target: DrilledTraining) -> None:
    """Skip the optimizer's steps from the onset on; a closure is still called."""
    for optimizer in target.optimizers:
        optimizer.step = _left_out(optimizer.step, target)  # type: ignore[method-assign]


def _left_out(taken: Callable[..., Any], target: DrilledTraining) -> Callable[..., Any]:
    @wraps(taken)
    def step(*arguments: Any, **options: Any) -> Any:
        if not target.is_due:
            return taken(*arguments, **options)
        target.note()
        closure = options.get("closure", next(iter(arguments), None))
        return closure() if closure else None

    return step


def keep_gradients(target: DrilledTraining) -> None:
    """Replace `zero_grad`, so that no call clears the gradients."""

    def zero_grad(set_to_none: bool = True) -> None:  # noqa: ARG001  the signature of torch
        target.note()

    target.missing = "neither optimizer.zero_grad() nor model.zero_grad() was called"
    for held in (*target.optimizers, target.model):
        held.__dict__["zero_grad"] = zero_grad


def lose_state(target: DrilledTraining) -> None:
    """Clear the optimizer state at the onset and begin a new session, as a resume does that restores the weights alone."""

    def before_step() -> None:
        if target.step != target.amount.onset:
            return
        states = [state for optimizer in target.optimizers for state in optimizer.state.values()]
        if not any(torch.is_tensor(value) for state in states for value in state.values()):
            raise FaultNotPossibleError("the optimizer keeps no state, so that none can be lost")
        for optimizer in target.optimizers:
            optimizer.state.clear()
        target.note()
        target.is_resumed = True

    if target.optimizers:
        target.before_step.append(before_step)


# Damage to the batches of the training's loader.
def change_batches(target: DrilledTraining, change: Callable[[Any], Any]) -> None:
    """Change the batches that a `DataLoader` returns in training mode with gradients; validation batches stay unchanged."""
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    given = _BaseDataLoaderIter.__next__

    def following(iterator: Any) -> Any:
        batch = given(iterator)
        return change(batch) if target.model.training and torch.is_grad_enabled() else batch

    target.missing = NO_LOADER
    _BaseDataLoaderIter.__next__ = following  # type: ignore[assignment]


def stick(target: DrilledTraining) -> None:
    """Return the batch of the onset again and again, in new tensors, as a loader would."""
    first: list[Any] = []

    def change(batch: Any) -> Any:
        if not target.is_due:
            return batch
        if first:
            target.note()
        else:
            first.append(batch)
        return with_changed_batch(first[0], lambda part, _: part.clone())

    change_batches(target, change)


def by_rows(change: Callable[[Tensor, str | int], Tensor]) -> FaultAction:
    """Return a fault that changes the batched tensors of each batch; `change` returns a tensor unchanged to leave it alone."""

    def do(target: DrilledTraining) -> None:
        def of_part(part: Tensor, name: str | int) -> Tensor:
            new = change(part, name) if part.dim() and len(part) > 1 else part
            if new is not part:
                target.note()
            return new

        change_batches(target, lambda batch: with_changed_batch(batch, of_part))

    return do


def _half(part: Tensor, _name: str | int) -> Tensor:
    return torch.cat([part[: len(part) // 2], part[: len(part) // 2], part[: len(part) % 2]])


def _moved(part: Tensor, name: str | int) -> Tensor:
    return part.roll(1, 0) if name in TARGETS else part


NO_NORM, NO_DROPOUT = "the model has no normalisation", "the model has no nn.Dropout"
NO_BATCH_NORM, NO_MASK = "the model has no batch normalization", "the model has no attention module that is handed a causal mask"
NO_ACTIVATION, NO_RELU = (
    "the model has no activation function that is a module",
    "the model has no nn.ReLU behind a layer with a bias",
)

FAULT_ACTIONS: Mapping[str, FaultAction] = {
    "rate_too_high": multiply_rate(lambda amount: amount.between(10, 100)),
    "rate_too_low": multiply_rate(lambda amount: 1 / amount.between(100, 10_000)),
    "rate_raised": multiply_rate(lambda amount: amount.between(10, 50)),
    "rate_dropped": multiply_rate(lambda _: 0.0),
    "part_drawn_anew": lambda target: once(lambda model: damage.draw_part_anew(model, target.source))(target),
    "matrix_zeroed": once(damage.zero_matrix),
    "half_zeroed": once(damage.zero_half_of_matrix),
    "weights_times_5": once(damage.multiply_weights),
    "gradient_nan": once(damage.spoil_gradient),
    "gradients_lost": always(damage.lose_gradients),
    "gradients_kept": keep_gradients,
    "sign_flipped": always(damage.flip_gradients),
    "part_frozen": at_start(lambda model, _: damage.freeze_part(model)),
    "part_detached": detach_part,
    "not_in_optimizer": leave_part_out,
    "updates_left_out": leave_updates_out,
    "optimizer_state_lost": lose_state,
    "decay_too_strong": set_option("weight_decay", strong_decay),
    "epsilon_too_large": set_option("eps", lambda amount, _: amount.between(0.1, 10)),
    "init_too_large": at_start(lambda model, amount: damage.scale_matrices(model, amount.between(5, 30))),
    "init_too_small": at_start(lambda model, amount: damage.scale_matrices(model, 1 / amount.between(100, 10_000))),
    "norms_missing": at_start(lambda model, _: damage.leave_norms_out(model), NO_NORM),
    "units_saturated": at_start(lambda model, _: damage.saturate_activations(model), NO_ACTIVATION),
    "units_dead": at_start(lambda model, _: damage.kill_units(model), NO_RELU),
    "dropout_too_high": at_start(lambda model, amount: damage.raise_dropout(model, 0.7 + 0.25 * amount.strength), NO_DROPOUT),
    "left_in_evaluation_mode": at_start(lambda model, _: damage.stay_in_evaluation_mode(model), NO_BATCH_NORM),
    "causal_masks_dropped": at_start(lambda model, _: damage.drop_causal_masks(model), NO_MASK),
    "loader_stuck": stick,
    "batches_doubled": by_rows(_half),
    "targets_moved": by_rows(_moved),
}
"""Maps each fault of `settings.KINDS` to its implementation."""
