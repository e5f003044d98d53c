"""The settings of a drill: faults by name, the environment variable that a recorder obeys, and the status file."""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from ckaudit.errors import UsageError

DRILL_ENVIRONMENT_VARIABLE = "CKAUDIT_DRILL"


class FaultKind(Struct, frozen=True, kw_only=True):
    """Properties of a fault, independent of its implementation.

    Attributes:
        title: Short description.
        truth: Name of the true cause.
        acceptable: Other causes that count as right: synonyms, and causes that cannot be told apart from it.
        is_fact: Whether weights, gradients or code are changed, so that a recording shows the fault even if the loss does not.
        sudden: Whether it starts at the onset, not at step 0.
        place: Whether a finding should name a place: the middle module.
        usual: Whether a drill includes it by default.
    """

    title: str
    truth: str
    acceptable: tuple[str, ...] = ()
    is_fact: bool = False
    sudden: bool = False
    place: bool = False
    usual: bool = False


CORRUPTION_CAUSES = ("silent_data_corruption",)
KINDS: Mapping[str, FaultKind] = {
    "rate_too_high": FaultKind(
        title="a learning rate 10 to 100 times too high", truth="learning_rate_too_high", acceptable=("missing_warmup",)
    ),
    "rate_too_low": FaultKind(
        title="a learning rate 100 to 10,000 times too low",
        truth="learning_rate_too_low",
        acceptable=("optimizer_unsuited",),  # with plain SGD: its rates are a hundred times Adam's
        usual=True,
    ),
    "rate_raised": FaultKind(
        title="a learning rate that is raised 10 to 50 times in the middle",
        truth="learning_rate_changed",
        acceptable=("learning_rate_too_high",),
        sudden=True,
        usual=True,
    ),
    "rate_dropped": FaultKind(
        title="a learning rate that falls to zero in the middle",
        truth="learning_rate_is_zero",
        acceptable=("schedule_horizon_wrong", "learning_rate_changed", "learning_rate_too_low"),
        is_fact=True,
        sudden=True,
        usual=True,
    ),
    "part_drawn_anew": FaultKind(
        title="a part that is initialised anew in the middle",
        truth="weights_changed_outside_optimizer",
        acceptable=CORRUPTION_CAUSES,
        is_fact=True,
        sudden=True,
        place=True,
        usual=True,
    ),
    "matrix_zeroed": FaultKind(
        title="a matrix that is zeroed in the middle",
        truth="weights_changed_outside_optimizer",
        acceptable=CORRUPTION_CAUSES,
        is_fact=True,
        sudden=True,
        place=True,
        usual=True,
    ),
    "half_zeroed": FaultKind(
        title="half of a matrix that is zeroed in the middle",
        truth="weights_changed_outside_optimizer",
        acceptable=CORRUPTION_CAUSES,
        is_fact=True,
        sudden=True,
        place=True,
    ),
    "weights_times_5": FaultKind(
        title="weights that are multiplied by five in the middle",
        truth="weights_changed_outside_optimizer",
        acceptable=CORRUPTION_CAUSES,
        is_fact=True,
        sudden=True,
        usual=True,
    ),
    "gradient_nan": FaultKind(
        title="a gradient that is NaN at one step",
        truth="nonfinite_operation",
        acceptable=("silent_data_corruption", "bad_batch"),
        is_fact=True,
        sudden=True,
        place=True,
        usual=True,
    ),
    "gradients_lost": FaultKind(
        title="a part whose gradients are thrown away",
        truth="gradient_path_cut",
        acceptable=("not_in_optimizer", "frozen_by_mistake"),
        is_fact=True,
        place=True,
    ),
    "gradients_kept": FaultKind(title="gradients that are never zeroed", truth="gradients_not_zeroed", is_fact=True, usual=True),
    "sign_flipped": FaultKind(title="gradients with the wrong sign", truth="loss_sign_flipped"),
    "part_frozen": FaultKind(
        title="a part that asks for no gradient",
        truth="frozen_by_mistake",
        acceptable=("not_in_optimizer",),
        is_fact=True,
        place=True,
        usual=True,
    ),
    "part_detached": FaultKind(
        title="a part whose output is detached",
        truth="gradient_path_cut",
        acceptable=("dead_path",),
        is_fact=True,
        place=True,
        usual=True,
    ),
    "not_in_optimizer": FaultKind(
        title="a part that the optimizer does not hold",
        truth="not_in_optimizer",
        acceptable=("frozen_by_mistake",),
        is_fact=True,
        place=True,
    ),
    "updates_left_out": FaultKind(
        title="an optimizer that takes no step any more", truth="updates_not_applied", is_fact=True, sudden=True, usual=True
    ),
    "optimizer_state_lost": FaultKind(
        title="a resume without the optimizer's state", truth="optimizer_state_lost", is_fact=True, sudden=True, usual=True
    ),
    "decay_too_strong": FaultKind(title="a weight decay that outweighs the gradient", truth="weight_decay_too_high", usual=True),
    "epsilon_too_large": FaultKind(title="an epsilon of 0.1 to 10 in Adam", truth="adam_epsilon_too_large"),
    "init_too_large": FaultKind(title="initial weights 5 to 30 times too large", truth="init_too_large"),
    "init_too_small": FaultKind(title="initial weights 100 to 10,000 times too small", truth="init_too_small"),
    "norms_missing": FaultKind(title="a model whose normalisations were left out", truth="normalization_missing"),
    "units_saturated": FaultKind(
        title="activation functions that are driven into their flat ends", truth="saturating_activation"
    ),
    "units_dead": FaultKind(title="ReLUs of which nine in ten never fire", truth="dead_units"),
    "dropout_too_high": FaultKind(title="a dropout of 0.7 to 0.95", truth="dropout_too_high"),
    "left_in_evaluation_mode": FaultKind(
        title="a model that trains in evaluation mode, with batch normalization by its running averages",
        truth="training_in_evaluation_mode",
        is_fact=True,
    ),
    "causal_masks_dropped": FaultKind(title="attention that sees the tokens to come", truth="causal_mask_leaks", is_fact=True),
    "loader_stuck": FaultKind(
        title="a loader that gives the same batch from the middle on",
        truth="loader_stuck",
        acceptable=("too_little_data",),
        is_fact=True,
        sudden=True,
        usual=True,
    ),
    "batches_doubled": FaultKind(
        title="batches whose second half repeats the first",
        truth="batches_repeated",
        acceptable=("batch_too_small",),
        is_fact=True,
    ),
    "targets_moved": FaultKind(
        title="targets that belong to the row before", truth="targets_misaligned", acceptable=("noisy_labels",), usual=True
    ),
}
"""The faults that need only a training's model, optimizer, gradients and loader."""


class DrillSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for a recorder, as JSON in an environment variable.

    Attributes:
        folder: Folder of the run, instead of the one that the program names.
        steps: Steps after which the training ends.
        fault: Name of the fault; empty: a healthy training.
        onset: First step at which a sudden fault acts, counted from the recorder's start.
        strength: How strong it is, from 0 (the weakest) to 1.
        seed: Seed of a fault's random numbers.
    """

    folder: str
    steps: int
    fault: str = ""
    onset: int = 1
    strength: float = 0.5
    seed: int = 0

    @property
    def note(self) -> Path:
        """The status file, beside the run folder."""
        return status_path(Path(self.folder))

    def as_environment(self) -> dict[str, str]:
        """Return the environment variable with these settings."""
        return {DRILL_ENVIRONMENT_VARIABLE: msgspec.json.encode(self).decode()}


class DrillStatus(Struct, kw_only=True):
    """Status of a drilled training.

    Attributes:
        done: Steps taken since its start.
        first: Number of the first of these steps; more than 1 if the training continues an earlier one.
        acted: First step, counted like `onset`, at which the fault acted; None: it did not.
        place: The module that was changed; empty: the whole model, or none.
        why_not: Why the fault cannot be injected; empty: it can.
        is_over: Whether it ended after all its steps.
    """

    done: int = 0
    first: int = 1
    acted: int | None = None
    place: str = ""
    why_not: str = ""
    is_over: bool = False


def settings_from_environment() -> DrillSettings | None:
    """Return the settings in the environment; None: there are none, as in every real training.

    Raises:
        UsageError: If the variable does not hold such settings.
    """
    text = os.environ.get(DRILL_ENVIRONMENT_VARIABLE)
    if text is None:
        return None
    try:
        settings = msgspec.json.decode(text, type=DrillSettings)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise UsageError(
            f"{DRILL_ENVIRONMENT_VARIABLE} does not hold the settings of a drill: {error}",
            hint=f"ckaudit drill sets it; unset {DRILL_ENVIRONMENT_VARIABLE}",
        ) from None
    if settings.fault and settings.fault not in KINDS:
        raise UsageError(
            f"{DRILL_ENVIRONMENT_VARIABLE} asks for an unknown fault {settings.fault!r}", hint="ckaudit drill --list names them"
        )
    return settings


def status_path(folder: Path) -> Path:
    """Return the path of a run folder's status file: beside the folder, because it is not part of the run."""
    return folder.with_name(folder.name + ".note.json")


def read_status(folder: Path) -> DrillStatus | None:
    """Return the status of a drilled training; None if no recorder has started."""
    path = status_path(folder)
    return msgspec.json.decode(path.read_bytes(), type=DrillStatus) if path.exists() else None
