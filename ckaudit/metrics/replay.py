"""Replay: the same steps run twice from the same state; a difference shows nondeterminism."""

from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series


@metric(unit="1", reads=["replay.identical", "replay_identical"], source="playbook D1.6", memory=1)
def replay_identical(run: Run) -> Series:
    r"""Whether a second run of the same steps gives bit-identical weights: 1 if so, 0 if not.

    $$\mathbb{1}[\,\theta_t = \theta'_t\,]$$

    Shape (C, 1): checkpoints that were replayed, or (T, 1) if it is logged under this name.
    """
    return run.value("replay.identical") or run.scalar("replay_identical")


@metric(unit="nats/token", reads=["replay.loss_diff", "replay_loss_diff"], source="playbook D1.6", memory=1)
def replay_loss_diff(run: Run) -> Series:
    r"""Largest difference between a loss and that of the same step in a second run.

    $$\max_t |L_t - L'_t|$$

    Shape (C, 1): checkpoints that were replayed; 0 where the training is deterministic.
    """
    return run.value("replay.loss_diff") or run.scalar("replay_loss_diff")


@metric(unit="steps", reads=["replay.first_difference"], source="playbook D1.6", memory=1)
def replay_first_difference(run: Run) -> Series:
    r"""The first step at which a second run differed.

    $$\min\{t : L_t \ne L'_t\}$$

    Shape (C, 1): checkpoints that were replayed and differed.
    """
    return run.value("replay.first_difference")
