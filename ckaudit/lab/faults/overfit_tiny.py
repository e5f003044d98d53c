"""A training set of a few rows."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="data",
    truth="too_little_data",
    symptoms=("overfitting",),
    consequences=(
        *("repeated_batch", "loss_below_floor", "entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping"),
        *("vanishing_gradient", "update_out_of_band"),
    ),
    dev=Amount(strength=48),
    test=Amount(strength=40),
    detectable=150,
)
class OverfitTiny(Change):
    """There are `strength` rows to train on, gone through again and again.

    They are learnt by heart: the training loss falls towards zero while the validation loss rises from its first values on.

    Seen under seed 0: from step 75 to 150 the training loss goes from 1.7 to 0.56 and the validation loss from 2.3 to 3.5.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make the training set small."""
        return replace(plan, data=replace(plan.data, rows=int(self.strength)))
