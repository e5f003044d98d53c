"""The specification of one training as plain data: model, corpus, optimizer, schedule and length."""

import math
from typing import Literal

from msgspec import Struct

Precision = Literal["float32", "bfloat16", "float16"]
Shape = Literal["cosine", "linear", "constant", "plateau", "stairs", "restarts"]


class Gpt(Struct, frozen=True, kw_only=True):
    """A small causal transformer with pre-norm blocks.

    Attributes:
        width: Size of the residual stream.
        depth: Blocks.
        heads: Query heads of each block; each has width / heads channels.
        kv_heads: Key and value heads; None: as many as query heads.
        hidden: Hidden units of each MLP; with experts, of each expert.
        norm: Root-mean-square or layer norm.
        positions: A learned table, or rotations of queries and keys.
        activation: Activation of the MLP; "swiglu" has a gate.
        qk_norm: Norm queries and keys of each head.
        tied: One matrix for embedding and head.
        dropout: Share of elements dropped after attention and MLP.
        experts: Experts of a Switch layer in place of each MLP; 0: a plain MLP.
        capacity: Tokens that an expert takes, over its fair share.
        fused: Attention by `scaled_dot_product_attention`; otherwise its logits and probabilities are outputs of modules.
        init_std: Standard deviation of the initial weights.
    """

    width: int = 48
    depth: int = 3
    heads: int = 4
    kv_heads: int | None = None
    hidden: int = 240
    norm: Literal["rms", "layer"] = "rms"
    positions: Literal["learned", "rope"] = "learned"
    activation: Literal["gelu", "swiglu", "relu", "sigmoid"] = "gelu"
    qk_norm: bool = False
    tied: bool = False
    dropout: float = 0.0
    experts: int = 0
    capacity: float = 1.25
    fused: bool = False
    init_std: float = 0.02


class Llama(Struct, frozen=True, kw_only=True):
    """A Llama of `transformers` with random weights."""

    width: int = 48
    depth: int = 2
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 128


class Lstm(Struct, frozen=True, kw_only=True):
    """An embedding, layers of LSTM and a head."""

    width: int = 64
    depth: int = 2


class Mlp(Struct, frozen=True, kw_only=True):
    """A classifier of points: linear layers with ReLU."""

    hidden: int = 128
    depth: int = 3


class Cnn(Struct, frozen=True, kw_only=True):
    """A classifier of small pictures: convolutions with batch norm and ReLU, pooling, a head."""

    channels: int = 16
    depth: int = 3


Model = Gpt | Llama | Lstm | Mlp | Cnn


class Data(Struct, frozen=True, kw_only=True):
    """The source of batches.

    Attributes:
        corpus: Name of a corpus; see `corpora`.
        tokens: Kind of tokens of a text.
        batch_size: Rows of a batch.
        length: Tokens of a row.
        rows: Distinct training rows, repeated in epochs; None: always new ones.
        shares: Share of each source in a batch, by name; empty: the corpus's own.
        held_rows: Rows of the held-out set.
        held_apart: Whether training never sees the held-out rows.
    """

    corpus: str = "verbs"
    tokens: Literal["characters", "bpe"] = "characters"
    batch_size: int = 32
    length: int = 64
    rows: int | None = None
    shares: dict[str, float] = {}
    held_rows: int = 128
    held_apart: bool = True


class Optimizer(Struct, frozen=True, kw_only=True):
    """The optimizer and its settings.

    Attributes:
        kind: AdamW, or SGD with momentum.
        peak: Highest learning rate.
        betas: Decay of AdamW's moments; the first is SGD's momentum.
        eps: AdamW's epsilon, added to the root of the second moment.
        weight_decay: Decoupled for AdamW.
        clip: Maximum global gradient norm; None: no clipping.
    """

    kind: Literal["adamw", "sgd"] = "adamw"
    peak: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float | None = 1.0


class Schedule(Struct, frozen=True, kw_only=True):
    """The learning rate relative to its peak, by step.

    Attributes:
        shape: Course after the warm-up: a cosine or a line down, "constant", a "plateau" with a steep end (WSD), down in
            "stairs", or a cosine that "restarts".
        warmup: Steps of linear warm-up.
        final: Final value, relative to the peak.
        tail: Share of the steps in which a plateau falls.
        periods: Number of stairs, or of cosines.
    """

    shape: Shape = "cosine"
    warmup: int = 30
    final: float = 0.1
    tail: float = 0.2
    periods: int = 3

    def factor(self, step: int, steps: int) -> float:
        """Return the learning rate of `step`, counted from 1, relative to the peak.

        >>> plan = Schedule(shape="linear", warmup=10, final=0.0)
        >>> [plan.factor(step, 110) for step in (1, 10, 60, 110)]
        [0.1, 1.0, 0.5, 0.0]
        """
        if step <= self.warmup:
            return step / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, steps - self.warmup))
        return self.final + (1 - self.final) * self._height(done)

    def _height(self, done: float) -> float:
        """Return the height between end and peak, 0 to 1, at a share of the schedule."""
        before_end = min(done, 1 - 1e-9)  # the last step belongs to the last period
        match self.shape:
            case "linear":
                return 1 - done
            case "cosine":
                return (1 + math.cos(math.pi * done)) / 2
            case "plateau":
                return min(1.0, (1 - done) / self.tail)
            case "stairs":
                return 1 - math.floor(before_end * self.periods) / (self.periods - 1)
            case "restarts":
                return (1 + math.cos(math.pi * (before_end * self.periods % 1))) / 2
        return 1.0


class Plan(Struct, frozen=True, kw_only=True):
    """One training; the defaults are healthy.

    Attributes:
        model: The model.
        data: The data.
        optimizer: The optimizer.
        schedule: The learning-rate schedule.
        steps: Steps of the schedule.
        stop: Last step trained; None: all.
        seed: Seed of weights and batches.
        accumulate: Number of batches per update.
        precision: Precision of the forward pass; float16 with a loss scaler.
        ranks: Processes that train one model together.
        eval_every: Steps between evaluations.
        resume_at: Step after which the training is stopped and resumed from its saved state.
    """

    model: Model = Gpt()
    data: Data = Data()
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    steps: int = 400
    stop: int | None = None
    seed: int = 0
    accumulate: int = 1
    precision: Precision = "float32"
    ranks: int = 1
    eval_every: int = 25
    resume_at: int | None = None

    @property
    def last(self) -> int:
        """The last step trained."""
        return self.steps if self.stop is None else self.stop

    def rate(self, step: int) -> float:
        """Return the planned learning rate of a step, counted from 1."""
        return self.optimizer.peak * self.schedule.factor(step, self.steps)
