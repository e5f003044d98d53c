"""A layer of experts, of which each token goes to one (Fedus et al. 2021)."""

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ckaudit.lab.plan import Gpt


class Switch(nn.Module):
    """Sends each token to the expert that the router likes best, as long as that one has room.

    Args:
        plan: Experts, their capacity over a fair share, and the router's width.
        experts: The experts, each mapping (n, D) to (n, D).

    Attributes:
        capacity: Tokens of a sequence that an expert takes, over its fair share.
        balance: Weight of the load-balance loss.
        top_k: Experts of each token.
        expert_capacity: Tokens of a sequence that an expert took at most in the last forward pass.
        auxiliary: What the last forward pass adds to the loss of training.
    """

    def __init__(self, plan: Gpt, experts: list[nn.Module]) -> None:
        super().__init__()
        self.router = nn.Linear(plan.width, len(experts), bias=False)
        self.experts = nn.ModuleList(experts)
        self.capacity, self.balance, self.top_k = plan.capacity, 0.01, 1
        self.expert_capacity = 0
        self.auxiliary: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D); a token that finds no room gets zeros, so that only the stream goes on."""
        self.expert_capacity = self.room(x.shape[1])
        shares = self.router(x).softmax(-1)  # (B, T, E)
        most, chosen = shares.max(-1)  # (B, T) both
        wanted = one_hot(chosen, shares.shape[-1])  # (B, T, E)
        kept = (wanted * (wanted.cumsum(1) <= self.expert_capacity)).bool()
        out = torch.zeros_like(x)
        for index, expert in enumerate(self.experts):
            mine = kept[..., index]
            out[mine] = (expert(x[mine]) * most[mine][:, None]).to(out.dtype)  # half precision inside an autocast
        self.auxiliary = self.balance * self.load_balance(shares, wanted)
        return out

    def room(self, length: int) -> int:
        """Return how many tokens of a sequence of this length an expert takes."""
        return math.ceil(self.capacity * length / len(self.experts))

    @staticmethod
    def load_balance(shares: Tensor, wanted: Tensor) -> Tensor:
        r"""Return $E \sum_i f_i P_i$ (Fedus et al. 2021, equation 4): 1 where tokens are spread evenly, E where one gets all."""
        tokens, chances = wanted.float().mean((0, 1)), shares.mean((0, 1))  # (E,) both
        return shares.shape[-1] * (tokens * chances).sum()
