"""The models whose training steps are timed, and their batches."""

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures" / "runs"))

from minigpt import Attention, MiniGPT

QWEN_LAYERS = 28


class Shape(Struct, frozen=True, kw_only=True):
    """A model, its batch, and how long it is measured.

    Attributes:
        name: Its name in tables.
        build: Makes the model.
        vocabulary: Number of tokens.
        rows: Sequences in a batch.
        length: Tokens in a sequence.
        steps: Steps measured for each way to train it, including warm-up.
        every: Steps from one checkpoint to the next; shorter than in a real run, to measure many of them.
    """

    name: str
    build: Callable[[], nn.Module]
    vocabulary: int
    rows: int
    length: int
    steps: int
    every: int

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Draw the tokens of a step: inputs and targets, (B, T) both, each target the input that follows."""
        drawn = torch.Generator().manual_seed(step)
        tokens = torch.randint(self.vocabulary, (self.rows, self.length + 1), generator=drawn)
        return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


class FusedAttention(Attention):
    """Causal self-attention as most models compute it: in one kernel, which exposes no probabilities."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__(width, heads)
        del self.logits, self.probabilities

    def forward(self, x: Tensor) -> Tensor:
        """Map the normed stream (B, T, D) to what the layer adds to it (B, T, D)."""
        q, k, v = (self._split(project(x)) for project in (self.q, self.k, self.v))  # (B, H, T, D/H)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


def gpt(*, vocabulary: int, length: int, width: int, heads: int, depth: int) -> nn.Module:
    """Return a MiniGPT of another size, with fused attention and four times as many hidden units as channels."""
    model = MiniGPT(vocabulary, length, width=width, heads=heads, hidden=4 * width, depth=depth)
    for block in model.blocks:
        block.attn = FusedAttention(width, heads)
    return model


def mini() -> nn.Module:
    """Return the model of the recorded runs."""
    return MiniGPT(28, 64, width=48, heads=4, hidden=240, depth=3)


def qwen(layers: int) -> nn.Module:
    """Return some layers of a model shaped like Qwen3-0.6B, with its whole embedding."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=1_024,
        intermediate_size=3_072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        tie_word_embeddings=True,
        use_cache=False,
    )
    return Qwen3ForCausalLM(config)


MINI = Shape(name="MiniGPT", build=mini, vocabulary=28, rows=32, length=64, steps=420, every=10)
NANO = Shape(
    name="GPT, 4 layers of 128",
    build=lambda: gpt(vocabulary=512, length=64, width=128, heads=4, depth=4),
    vocabulary=512,
    rows=12,
    length=64,
    steps=300,
    every=10,
)
SMALL = Shape(
    name="GPT, 12 layers of 384",
    build=lambda: gpt(vocabulary=8_192, length=128, width=384, heads=6, depth=12),
    vocabulary=8_192,
    rows=4,
    length=128,
    steps=66,
    every=4,
)
SHAPES = (MINI, NANO, SMALL)


def qwen_shape(layers: int) -> Shape:
    """Return the shape of `layers` layers of Qwen3-0.6B, trained on one row of 128 tokens."""
    return Shape(
        name=f"{layers} layers of Qwen3-0.6B",
        build=lambda: qwen(layers),
        vocabulary=151_936,
        rows=1,
        length=128,
        steps=11,
        every=3,
    )


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss of a batch, in nats."""
    logits = model(inputs)
    logits = logits if isinstance(logits, Tensor) else logits.logits  # (B, T, V)
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def parameters(model: nn.Module) -> int:
    """Return the number of parameters."""
    return sum(parameter.numel() for parameter in model.parameters())
