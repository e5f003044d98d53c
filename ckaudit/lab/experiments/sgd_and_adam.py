"""EXP-6: SGD and Adam, seen by what an update does to each weight."""

from collections.abc import Mapping

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import experiment


class Sgd(Change):
    """SGD with momentum 0.9 and `strength` times the learning rate that Adam has."""

    def plan(self, plan: Plan) -> Plan:
        """Replace the optimizer."""
        peak = plan.optimizer.peak * self.strength
        return replace(plan, optimizer=replace(plan.optimizer, kind="sgd", peak=peak, weight_decay=0.0))


@experiment(
    "EXP-6",
    look=(
        *("train_loss_raw", "update_norm/blocks.1.*", "update_to_weight/blocks.1.*", "update_to_weight_global"),
        *("grad_to_weight/blocks.1.*", "relative_movement/blocks.1.*", "moving_share"),
    ),
)
def sgd_and_adam() -> Mapping[str, Change]:
    """SGD and Adam, compared by their updates and not by their losses.

    Adam, SGD with Adam's learning rate, and SGD with a hundred times that. Adam gives every element an update of about the
    learning rate, so that all matrices move alike, whatever their gradients. SGD's updates are proportional to the
    gradient: tensors with small gradients, queries and keys above all, stay behind. With Adam's learning rate SGD
    hardly moves at all; with a hundred times that it comes as far as Adam.

    Look at the spread of update over weight between the matrices of one block at step 10: a factor of three with Adam, a
    thousand with SGD, where queries and keys stand still while attention is even.
    """
    return {"adam": Change(), "sgd, same rate": Sgd(0, 1), "sgd, rate x100": Sgd(0, 100)}
