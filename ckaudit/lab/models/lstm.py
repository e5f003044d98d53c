"""Layers of long short-term memory that predict the next token."""

import torch
from torch import Tensor, nn

from ckaudit.lab.plan import Lstm


class LstmModel(nn.Module):
    """An embedding, layers of LSTM one upon the other, and a head.

    Args:
        plan: Its shape.
        vocabulary: Tokens known.
    """

    def __init__(self, plan: Lstm, *, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, plan.width)
        self.layers = nn.ModuleList(nn.LSTM(plan.width, plan.width, batch_first=True) for _ in range(plan.depth))
        self.head = nn.Linear(plan.width, vocabulary, bias=False)
        self._initialize()

    def forward(self, codes: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        x = self.tokens(codes)
        for layer in self.layers:
            x, _ = layer(x)
        return self.head(x)

    @torch.no_grad()
    def _initialize(self) -> None:
        """Let the forget gates begin open: their bias is 1 (Jozefowicz et al. 2015)."""
        for name, weight in self.layers.named_parameters():
            if name.endswith("bias_ih_l0"):
                weight.chunk(4)[1].fill_(1.0)
