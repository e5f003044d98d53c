"""The small models of the tasks; several healthy trainings take them too."""

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name


def mlp(*widths: int, act: type[nn.Module] = nn.ReLU, dropout: float = 0.0) -> nn.Sequential:
    """Return linear layers of these widths with a function between them, and dropout behind it if there is any."""
    layers: list[nn.Module] = []
    for narrow, wide in pairwise(widths[:-1]):
        layers += [nn.Linear(narrow, wide), act(), *([nn.Dropout(dropout)] if dropout else [])]
    return nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))


def batch_norm_cnn(classes: int = 10) -> nn.Sequential:
    """Return two convolutions with batch normalization, for pictures of 16 pixels."""

    def block(narrow: int, wide: int) -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.MaxPool2d(2))

    return nn.Sequential(block(3, 16), block(16, 32), nn.Flatten(), nn.Linear(512, classes))


def plain_cnn(classes: int = 10) -> nn.Sequential:
    """Return two convolutions without normalization and two linear layers with dropout, for pictures of 16 pixels."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(64, classes),
    )


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalization beside the way around them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, C, H, W) to as many."""
        inner = F.relu(self.bn1(self.conv1(x)))
        return F.relu(x + self.bn2(self.conv2(inner)))


class ResNet(nn.Module):
    """A ResNet of three blocks of one width."""

    def __init__(self, width: int = 16, classes: int = 5) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.layers = nn.Sequential(*(ResidualBlock(width) for _ in range(3)))
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, H, W) to logits (B, classes)."""
        features = self.layers(F.relu(self.bn(self.stem(x))))
        return self.fc(features.mean((2, 3)))


class Block(nn.Module):
    """A pre-norm block of a transformer.

    Args:
        width: Width of the stream.
        causal: Whether a position sees no later one.
        dropout: Of what attention and MLP add to the stream.
    """

    def __init__(self, width: int, *, causal: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1, self.qkv, self.proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm2, self.fc1, self.fc2 = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout, self.causal = nn.Dropout(dropout), causal

    def forward(self, x: Tensor) -> Tensor:
        """Map the stream (B, T, D) to itself and what the block adds."""
        x = x + self.dropout(self.proj(self._attention(self.norm1(x))))
        return x + self.dropout(self.fc2(F.gelu(self.fc1(self.norm2(x)))))

    def _attention(self, x: Tensor, heads: int = 4) -> Tensor:
        rows, length, width = x.shape
        q, k, v = self.qkv(x).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(1, 2).reshape(rows, length, width)


class Gpt(nn.Module):
    """A language model of three blocks."""

    def __init__(self, words: int, width: int = 48) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*(Block(width, causal=True) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to the logits (B, T, words) of those that follow."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class Vit(nn.Module):
    """A vision transformer of three blocks whose last outputs are averaged."""

    def __init__(self, width: int = 32, classes: int = 5) -> None:
        super().__init__()
        self.patch, self.positions = nn.Conv2d(3, width, 4, 4), nn.Parameter(0.02 * torch.randn(1, 16, width))
        self.blocks = nn.Sequential(*(Block(width, causal=False, dropout=0.1) for _ in range(3)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map pictures (B, 3, 16, 16) to logits (B, classes)."""
        patches = self.patch(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.norm(self.blocks(patches)).mean(1))


class TextClassifier(nn.Module):
    """A GRU over embedded words whose outputs are averaged."""

    def __init__(self, words: int = 300, width: int = 48, classes: int = 4) -> None:
        super().__init__()
        self.embedding, self.gru = nn.Embedding(words, 32), nn.GRU(32, width, batch_first=True)
        self.dropout, self.head = nn.Dropout(0.2), nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        """Map words (B, T) to logits (B, classes)."""
        return self.head(self.dropout(self.gru(self.embedding(words))[0].mean(1)))


class Lstm(nn.Module):
    """An LSTM over a series of numbers, and a linear layer on its last output or on the mean of all."""

    def __init__(self, outputs: int, *, width: int = 48, averages: bool = False) -> None:
        super().__init__()
        self.lstm, self.head, self.averages = nn.LSTM(1, width, batch_first=True), nn.Linear(width, outputs), averages

    def forward(self, series: Tensor) -> Tensor:
        """Map series (B, T, 1) to outputs (B, outputs)."""
        states = self.lstm(series)[0]
        return self.head(states.mean(1) if self.averages else states[:, -1])


class EncoderDecoder(nn.Module):
    """An encoder and a decoder of linear layers: an autoencoder, or a classifier whose user calls its halves so."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, D) to outputs (B, E)."""
        return self.decoder(self.encoder(x))


class ResidualMlp(nn.Module):
    """Many linear layers, each added to what came in, without any normalization."""

    def __init__(self, inputs: int, outputs: int, *, depth: int, scale: float, width: int = 64) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(inputs, width), nn.Linear(width, outputs)
        layers = [nn.Linear(width, width) for _ in range(depth)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=scale)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """Map features (B, inputs) to outputs (B, outputs)."""
        x = self.first(x)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.last(x)


class TokenCrossEntropy(nn.CrossEntropyLoss):
    """Cross entropy over the tokens of all sequences."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002  torch calls it so
        """Return the loss of logits (B, T, C) at tokens (B, T)."""
        return super().forward(input.flatten(0, 1), target.flatten())


def layers_of(model: nn.Module) -> Sequence[nn.Module]:
    """Return the layers that hold most weights, in the order of the model."""
    kinds = (nn.Linear, nn.Conv2d, nn.LSTM, nn.GRU)
    return [module for module in model.modules() if isinstance(module, kinds)]


def middle_layer(model: nn.Module) -> nn.Module:
    """Return the layer in the middle of a model; of two the first."""
    layers = layers_of(model)
    return layers[(len(layers) - 1) // 2]


def middle_part(model: nn.Module) -> nn.Module:
    """Return the block in the middle of a model, or its middle layer where it has no blocks."""
    blocks = [module for module in model.modules() if isinstance(module, (Block, ResidualBlock))]
    return blocks[(len(blocks) - 1) // 2] if blocks else middle_layer(model)
