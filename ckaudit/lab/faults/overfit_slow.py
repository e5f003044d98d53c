"""A training set that is too small, which shows late."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="data",
    truth="too_little_data",
    symptoms=("overfitting",),
    consequences=(
        "loss_below_floor",
        "entropy_collapse",
        "logit_growth",
        "exploding_gradient",
        "frequent_clipping",
        "slice_regression",
    ),
    dev=Amount(strength=200),
    test=Amount(strength=150),
    detectable=300,
)
class OverfitSlow(Change):
    """There are `strength` rows to train on, enough for the validation loss to fall at first.

    The gap opens in the second half of the training, and the validation loss rises late.

    Seen under seed 0: a validation loss that is lowest at step 225 (1.81) and 2.01 at step 400, while the training loss goes
    on to 0.96.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make the training set small."""
        return replace(plan, data=replace(plan.data, rows=int(self.strength)))
