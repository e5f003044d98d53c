"""Models that predict the next token: a small GPT, with or without experts, a Llama and an LSTM."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot, scaled_dot_product_attention

from ckaudit.lab.plan import Gpt, Llama, Lstm

# A small GPT with the parts of current models; a fault can reach each of them as an attribute.
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


class Attention(nn.Module):
    """Causal self-attention with scaled logits and probabilities as outputs of two named submodules.

    Attributes:
        scale: Multiplies the products of queries and keys.
        gain: Multiplies the output of the layer.
    """

    def __init__(self, plan: Gpt) -> None:
        super().__init__()
        self.heads, self.kv_heads = plan.heads, plan.kv_heads or plan.heads
        size = plan.width // plan.heads
        self.q = nn.Linear(plan.width, plan.heads * size, bias=False)
        self.k = nn.Linear(plan.width, self.kv_heads * size, bias=False)
        self.v = nn.Linear(plan.width, self.kv_heads * size, bias=False)
        self.q_norm = nn.RMSNorm(size) if plan.qk_norm else nn.Identity()
        self.k_norm = nn.RMSNorm(size) if plan.qk_norm else nn.Identity()
        if not plan.fused:  # a module that is never called would be taken for one that outputs attention
            self.logits = nn.Identity()
            self.probabilities = nn.Identity()
        self.out = nn.Linear(plan.width, plan.width, bias=False)
        self.scale, self.gain = size**-0.5, 1.0
        self.rotates, self.fused = plan.positions == "rope", plan.fused

    def forward(self, x: Tensor) -> Tensor:
        """Map the normed stream (B, T, D) to the layer's output (B, T, D)."""
        q, k = self.q_norm(self._split(self.q(x), self.heads)), self.k_norm(self._split(self.k(x), self.kv_heads))
        v = self._split(self.v(x), self.kv_heads)  # (B, K, T, D/H)
        if self.rotates:
            q, k = rotate(q), rotate(k)
        shared = self.heads // self.kv_heads
        k, v = k.repeat_interleave(shared, dim=1), v.repeat_interleave(shared, dim=1)
        return self.out(self.mix(q, k, v).transpose(1, 2).flatten(2)) * self.gain

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the attention output, (B, H, T, D/H), like its arguments."""
        if self.fused:
            return scaled_dot_product_attention(q, k, v, attn_mask=self.visible(q.shape[2]), scale=self.scale)
        scaled = (q @ k.transpose(-1, -2) * self.scale).masked_fill(~self.visible(q.shape[2]), float("-inf"))
        return self.probabilities(self.logits(scaled).softmax(-1)) @ v

    def visible(self, length: int) -> Tensor:
        """Return which keys a query sees, (T, T): its own and earlier ones."""
        return torch.ones(length, length, dtype=torch.bool).tril()

    @staticmethod
    def _split(x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class Block(nn.Module):
    """Attention and MLP, each fed by its own norm and added to the residual stream.

    Attributes:
        skip: Factor of the residual connection around a branch.
    """

    def __init__(self, plan: Gpt) -> None:
        super().__init__()
        self.attn_norm = norm(plan)
        self.attn = Attention(plan)
        self.mlp_norm = norm(plan)
        self.mlp = feed_forward(plan)
        self.drop = nn.Dropout(plan.dropout)
        self.skip = 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches to the stream (B, T, D)."""
        x = x * self.skip + self.drop(self.attn(self.attn_norm(x)))
        return x * self.skip + self.drop(self.mlp(self.mlp_norm(x)))


class MiniGPT(nn.Module):
    """Predicts the next token.

    Args:
        plan: Its shape.
        vocabulary: Size of the vocabulary.
        length: Longest sequence.
    """

    def __init__(self, plan: Gpt, *, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, plan.width)
        self.positions = nn.Embedding(length, plan.width) if plan.positions == "learned" else None
        self.blocks = nn.ModuleList(Block(plan) for _ in range(plan.depth))
        self.norm = norm(plan)
        self.head = nn.Linear(plan.width, vocabulary, bias=False)
        initialize(self, plan)
        if plan.tied:
            self.head.weight = self.tokens.weight

    def forward(self, codes: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        x = self.tokens(codes)
        if self.positions is not None:
            x = x + self.positions(torch.arange(codes.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def norm(plan: Gpt) -> nn.Module:
    """Return a norm of the stream."""
    return nn.RMSNorm(plan.width) if plan.norm == "rms" else nn.LayerNorm(plan.width)


def initialize(model: nn.Module, plan: Gpt) -> None:
    """Draw all matrices from N(0, std), those that write to the stream smaller by sqrt(2 depth), as GPT-2 does."""
    for name, weight in model.named_parameters():
        if weight.dim() >= 2:
            writes = name.endswith(("attn.out.weight", "down.weight"))
            nn.init.normal_(weight, std=plan.init_std / math.sqrt(2 * plan.depth) if writes else plan.init_std)


# The layer after attention in a block: two linear maps, with or without a gate, or a layer of experts.
def feed_forward(plan: Gpt) -> nn.Module:
    """Return the layer of the plan."""
    layer = Gated if plan.activation == "swiglu" else FeedForward
    return Switch(plan, [layer(plan) for _ in range(plan.experts)]) if plan.experts else layer(plan)


# Rotary positions (Su et al. 2021).
def rotate(x: Tensor, *, base: float = 10_000.0) -> Tensor:
    r"""Turn each pair of channels of queries or keys (B, H, T, C) by an angle that grows with the position.

    Channels i and i + C/2 of position t turn by $t \cdot base^{-2i/C}$.
    """
    half = x.shape[-1] // 2
    speeds = base ** (-torch.arange(half) / half)  # (C/2,)
    angles = torch.arange(x.shape[-2])[:, None] * speeds  # (T, C/2)
    cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1)


# A layer of experts that sends each token to one of them (Fedus et al. 2021).
class Switch(nn.Module):
    """Sends each token to the expert that the router prefers, while that one has room.

    Args:
        plan: Experts, their capacity over a fair share, and the router's width.
        experts: The experts, each mapping (n, D) to (n, D).

    Attributes:
        capacity: Tokens of a sequence that an expert takes, over its fair share.
        balance: Weight of the load-balance loss.
        top_k: Experts of each token.
        expert_capacity: Maximum number of tokens of a sequence per expert in the last forward pass.
        auxiliary: Contribution of the last forward pass to the training loss.
    """

    def __init__(self, plan: Gpt, experts: list[nn.Module]) -> None:
        super().__init__()
        self.router = nn.Linear(plan.width, len(experts), bias=False)
        self.experts = nn.ModuleList(experts)
        self.capacity, self.balance, self.top_k = plan.capacity, 0.01, 1
        self.expert_capacity = 0
        self.auxiliary: Tensor | float = 0.0

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, T, D) to (B, T, D); a token without room gets zeros, so that only the residual stream passes."""
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
        """Return the number of tokens that an expert takes of a sequence of this length."""
        return math.ceil(self.capacity * length / len(self.experts))

    @staticmethod
    def load_balance(shares: Tensor, wanted: Tensor) -> Tensor:
        r"""Return $E \sum_i f_i P_i$ (Fedus et al. 2021, equation 4): 1 if tokens are spread evenly, E if one expert gets all."""
        tokens, chances = wanted.float().mean((0, 1)), shares.mean((0, 1))  # (E,) both
        return shares.shape[-1] * (tokens * chances).sum()


# A Llama of `transformers`, with random weights.
def llama(plan: Llama, *, vocabulary: int, length: int) -> nn.Module:
    """Build the model; its output has `logits` of shape (B, T, V)."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config: Any = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=plan.width,
        intermediate_size=plan.hidden,
        num_hidden_layers=plan.depth,
        num_attention_heads=plan.heads,
        num_key_value_heads=plan.kv_heads,
        max_position_embeddings=length,
        use_cache=False,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model


# LSTM layers that predict the next token.
class LstmModel(nn.Module):
    """An embedding, stacked LSTM layers, and a head.

    Args:
        plan: Its shape.
        vocabulary: Size of the vocabulary.
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
        """Initialise the forget gates as open: their bias is 1 (Jozefowicz et al. 2015)."""
        for name, weight in self.layers.named_parameters():
            if name.endswith("bias_ih_l0"):
                weight.chunk(4)[1].fill_(1.0)
