"""The loss against that of guessing."""

import math

from msgspec import UNSET

from ckaudit.metrics.loss import train_loss_raw
from ckaudit.metrics.metric import metric
from ckaudit.run.run import Run
from ckaudit.run.series import Series, empty


@metric(unit="1", reads=[train_loss_raw], source="entropy of the uniform distribution over V tokens")
def loss_over_guessing(run: Run) -> Series:
    r"""Training loss over the loss of a model that gives every token the same probability.

    $$L_t / \ln V$$

    Shape (T, 1): logged steps. Nothing where run.json says no vocabulary of more than one token.
    """
    facts = run.manifest
    size = facts.vocabulary if facts and facts.vocabulary is not UNSET else 0
    if size < 2:
        return empty("loss_over_guessing")
    return train_loss_raw(run).mapped(lambda values: values / math.log(size), "loss_over_guessing", "1")
