"""What stands behind attention in a block: two linear maps, with or without a gate, or a layer of experts."""

from torch import Tensor, nn

from ckaudit.lab.models.switch import Switch
from ckaudit.lab.plan import Gpt

ACTIVATIONS = {"gelu": nn.GELU, "relu": nn.ReLU, "sigmoid": nn.Sigmoid}


class FeedForward(nn.Module):
    """Two linear maps with an activation function between them."""

    def __init__(self, plan: Gpt) -> None:
        super().__init__()
        self.up = nn.Linear(plan.width, plan.hidden, bias=False)
        self.act = ACTIVATIONS[plan.activation]()
        self.down = nn.Linear(plan.hidden, plan.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        return self.down(self.act(self.up(x)))


class Gated(nn.Module):
    """A linear map times the SiLU of another (Shazeer 2020), then a third."""

    def __init__(self, plan: Gpt) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(plan.width, plan.hidden, bias=False)
        self.up = nn.Linear(plan.width, plan.hidden, bias=False)
        self.act = nn.SiLU()
        self.down = nn.Linear(plan.hidden, plan.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D)."""
        return self.down(self.act(self.gate_proj(x)) * self.up(x))


def feed_forward(plan: Gpt) -> nn.Module:
    """Return the layer that the plan asks for."""
    layer = Gated if plan.activation == "swiglu" else FeedForward
    return Switch(plan, [layer(plan) for _ in range(plan.experts)]) if plan.experts else layer(plan)
