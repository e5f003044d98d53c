"""Small models as tutorials write them: those of `ten_kinds.py` that are more than a stack of layers."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name


class CharacterLstm(nn.Module):
    """An LSTM that predicts the next character."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(96, 48)
        self.lstm = nn.LSTM(48, 96, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(96, 96)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, 96)."""
        logits: Tensor = self.head(self.lstm(self.embedding(tokens))[0])
        return logits


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return hidden states (B, T, C)."""
        batch, length, width = hidden.shape
        parts = self.qkv(self.norm_1(hidden)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True)
        hidden = hidden + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.mlp(self.norm_2(hidden))


class SmallGpt(nn.Module):
    """A GPT of characters."""

    def __init__(self, width: int = 64, blocks: int = 3, length: int = 64) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(96, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(blocks))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 96, bias=False)
        self.apply(self._start)

    @staticmethod
    def _start(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (B, T, 96)."""
        hidden = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Vae(nn.Module):
    """An encoder to a mean and a log variance, and a decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 16))
        self.decoder = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 256))

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the decoded picture, the mean and the log variance."""
        mean, log_variance = self.encoder(pictures).chunk(2, dim=1)
        hidden = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decoder(hidden).view_as(pictures), mean, log_variance


class Forecaster(nn.Module):
    """A GRU that predicts the next value of a series."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(1, 48, batch_first=True), nn.Linear(48, 1)

    def forward(self, series: Tensor) -> Tensor:
        """Return the predictions (B, 1) for series (B, T, 1)."""
        ahead: Tensor = self.head(self.gru(series)[0][:, -1])
        return ahead


class GraphNetwork(nn.Module):
    """Two graph convolutions (Kipf and Welling)."""

    def __init__(self, neighbours: Tensor) -> None:
        super().__init__()
        self.neighbours = neighbours
        self.first, self.second, self.dropout = nn.Linear(32, 32), nn.Linear(32, 4), nn.Dropout(0.5)

    def forward(self, nodes: Tensor) -> Tensor:
        """Return logits (N, 4) of all nodes."""
        hidden = torch.relu(self.neighbours @ self.first(nodes))
        logits: Tensor = self.neighbours @ self.second(self.dropout(hidden))
        return logits


class LowRank(nn.Module):
    """A frozen layer plus the product of two small matrices."""

    def __init__(self, layer: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.layer = layer
        self.a, self.b = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
        nn.init.zeros_(self.b.weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the layer's output plus the low-rank change."""
        changed: Tensor = self.layer(hidden) + 2 * self.b(self.a(hidden))
        return changed
