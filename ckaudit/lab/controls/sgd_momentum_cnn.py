"""Plain SGD with momentum."""

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Optimizer, Plan
from ckaudit.lab.story import control


@control(family="cnn")
class SgdMomentumCnn(Change):
    """A convolutional network is trained by SGD with momentum, at fifty times the learning rate of Adam.

    It looks ill because the learning rate is high and updates of tensors differ by orders: SGD moves each by its gradient.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose the optimizer."""
        return replace(plan, optimizer=Optimizer(kind="sgd", peak=0.05, betas=(0.9, 0.0), weight_decay=5e-4, clip=None))
