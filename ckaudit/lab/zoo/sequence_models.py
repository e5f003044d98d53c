"""Models of tokens and time series, as users write them."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.recipe import Batch, Recipe, classified, own_loss, pretrained, squared
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS, chain, topics
from ckaudit.lab.zoo.text_models import ASKED, END, LENGTH, START, bert, masked_tokens


class Lstm(nn.Module):
    """A language model of two LSTM layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(WORDS, 48), nn.LSTM(48, 64, num_layers=2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(64, WORDS)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        logits: Tensor = self.head(self.lstm(self.embed(tokens))[0])
        return logits


def read(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return tokens, and the next of each."""
    tokens = chain(source, rows, 33)
    return {"x": tokens[:, :-1], "y": tokens[:, 1:]}


def next_token_loss(model: Any, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Return the cross entropy of the next token, at the positions that count."""
    return F.cross_entropy(model(batch["x"]).flatten(0, 1).float(), batch["y"].flatten(), label_smoothing=smoothing)


class Gru(nn.Module):
    """Predicts a number from a sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.head = nn.GRU(3, 48, batch_first=True), nn.Linear(48, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map sequences (B, T, 3) to one number each (B, 1)."""
        prediction: Tensor = self.head(self.gru(x)[0][:, -1])
        return prediction


def waves(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return noisy waves, and the next value of each."""
    phase, speed = (torch.rand(rows, 1, 3, generator=source) * span for span in (6.28, 0.5))
    clean = torch.sin(phase + (0.1 + speed) * torch.arange(25)[None, :, None])
    return {"x": clean[:, :-1] + 0.1 * torch.randn(rows, 24, 3, generator=source), "y": clean[:, -1, :1]}


class PrefixLm(nn.Module):
    """A language model with a prefix that is read in both directions, followed by text in order."""

    def __init__(self, width: int = 48, depth: int = 3) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(WORDS, width), nn.Embedding(LENGTH, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 96, 0.0, batch_first=True) for _ in range(depth))
        self.head = nn.Linear(width, WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        places = torch.arange(tokens.shape[1])
        hidden = (places > places[:, None]) & (places >= ASKED)
        x = self.embed(tokens) + self.positions(places)
        for layer in self.layers:
            x = layer(x, src_mask=hidden)
        logits: Tensor = self.head(x)
        return logits


def continued(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return tokens, and the next of each; those of the prefix do not count."""
    tokens = chain(source, rows, LENGTH + 1)
    targets = tokens[:, 1:].clone()
    targets[:, : ASKED - 1] = -100
    return {"x": tokens[:, :-1], "y": targets}


class Translator(nn.Module):
    """`nn.Transformer` as in its tutorial."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.transformer = nn.Transformer(width, 4, 2, 2, 96, 0.1, batch_first=True)
        self.head = nn.Linear(width, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map two languages (B, S) and (B, T) to logits (B, T, V) of the second."""
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        read, written = (
            embed(tokens) + self.positions[: tokens.shape[1]] for embed, tokens in ((self.source, source), (self.target, target))
        )
        logits: Tensor = self.head(self.transformer(read, written, tgt_mask=mask, tgt_is_causal=True))
        return logits


def two_languages(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return sentences, the known part of their translations, and the next tokens."""
    tokens = chain(source, rows, LENGTH // 2)
    alphabet = FIRST + torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(9))
    written = torch.cat([torch.full((rows, 1), START), alphabet[tokens - FIRST], torch.full((rows, 1), END)], 1)
    return {"source": tokens, "x": written[:, :-1], "y": written[:, 1:]}


def translation_loss(model: Any, batch: Batch, *, smoothing: float = 0.0) -> Tensor:
    """Return the cross entropy of the translation."""
    logits = model(batch["source"], batch["x"]).flatten(0, 1).float()
    return F.cross_entropy(logits, batch["y"].flatten(), label_smoothing=smoothing)


class PooledBert(nn.Module):
    """A BERT whose hidden states are averaged for the user's own head; its pooling layer is unused.

    Args:
        trunk: The BERT; a new one by default.
    """

    def __init__(self, trunk: nn.Module | None = None) -> None:
        super().__init__()
        self.bert, self.head = (trunk or bert()).get_submodule("bert"), nn.Linear(64, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, 4)."""
        logits: Tensor = self.head(self.bert(tokens).last_hidden_state.mean(1))
        return logits


def sorted_texts(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return texts and the kind of their topic."""
    tokens = topics(source, rows, LENGTH)
    return {"x": tokens, "y": (tokens[:, 0] - FIRST) // 6 % 4}


def head_on_frozen_bert() -> nn.Module:
    """Return a frozen BERT, pretrained on masked words, with a new head."""
    return PooledBert(
        pretrained(bert(), masked_tokens(torch.Generator().manual_seed(5), 1024), own_loss, steps=120, lr=1e-3, batch=16)
    )


class SkipGram(nn.Module):
    """Word vectors, learnt from neighbouring words."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.context = nn.Embedding(WORDS, 24), nn.Embedding(WORDS, 24)

    def forward(self, x: Tensor, others: Tensor) -> Tensor:
        """Return the logits (B, K) that each of others (B, K) is a neighbour of x (B)."""
        return torch.einsum("bd,bkd->bk", self.word(x), self.context(others))


def neighbours(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return words, a neighbour of each, and some random ones."""
    tokens = chain(source, rows, 2)
    return {"x": tokens[:, 0], "others": torch.cat([tokens[:, 1:], torch.randint(4, WORDS, (rows, 5), generator=source)], 1)}


def negative_sampling_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss of negative sampling."""
    logits = model(batch["x"], batch["others"])
    return -(F.logsigmoid(logits[:, 0]) + F.logsigmoid(-logits[:, 1:]).sum(1)).mean()


class TemporalConvolution(nn.Module):
    """A language model of dilated causal convolutions with weight normalisation and ReLU."""

    def __init__(self, width: int = 48, depth: int = 4) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        norm = nn.utils.parametrizations.weight_norm
        self.convs = nn.ModuleList(norm(nn.Conv1d(width, width, 2, dilation=2**level)) for level in range(depth))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, T, V)."""
        x = self.embed(tokens).transpose(1, 2)
        for level, conv in enumerate(self.convs):
            x = x + F.relu(conv(F.pad(x, (2**level, 0))))
        logits: Tensor = self.head(x.transpose(1, 2))
        return logits


class AttentiveTranslator(nn.Module):
    """A translator of two GRUs with additive attention."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, width), nn.Embedding(WORDS, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.query, self.key, self.energy = nn.Linear(width, 32), nn.Linear(2 * width, 32), nn.Linear(32, 1)
        self.head = nn.Linear(3 * width, WORDS)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Map two languages (B, S) and (B, T) to logits (B, T, V) of the second."""
        read, _ = self.encoder(self.source(source))
        written, _ = self.decoder(self.target(target))
        energy = self.energy(torch.tanh(self.query(written)[:, :, None] + self.key(read)[:, None])).squeeze(-1)
        logits: Tensor = self.head(torch.cat([written, energy.softmax(-1) @ read], -1))
        return logits


LOOP = Recipe(
    model=PrefixLm, rows=continued, loss=next_token_loss, lr=2e-3, facts={"vocabulary": WORDS, "sequence_length": LENGTH}
)
FAMILIES = {
    "lstm": replace(
        LOOP,
        model=Lstm,
        rows=read,
        through="lightning",
        optimizer="adam",
        lr=5e-3,
        clip=1.0,
        facts={"batch_of": list, "vocabulary": WORDS, "sequence_length": 32},
    ),
    "gru": replace(LOOP, model=Gru, rows=waves, loss=squared, optimizer="rmsprop", lr=1e-3, batch=64, facts={}),
    "temporal_convolution": replace(LOOP, model=TemporalConvolution, rows=read, optimizer="adam"),
    "prefix_lm": LOOP,
    "translator": replace(
        LOOP, model=Translator, rows=two_languages, loss=translation_loss, through="lightning", lr=1e-3, clip=1.0
    ),
    "gru_translator": replace(
        LOOP, model=AttentiveTranslator, rows=two_languages, loss=translation_loss, optimizer="adam", lr=3e-3, clip=1.0
    ),
    "bert_with_a_head": replace(LOOP, model=PooledBert, rows=sorted_texts, loss=classified, facts={}, lr=5e-4),
    "bert_frozen": replace(LOOP, model=head_on_frozen_bert, rows=sorted_texts, loss=classified, facts={}, lr=1e-2),
    "bert_by_sgd": replace(
        LOOP, model=PooledBert, rows=sorted_texts, loss=classified, facts={}, optimizer="sgd", lr=0.01, batch=32, warmup=20
    ),
    "word2vec": replace(
        LOOP,
        model=SkipGram,
        rows=neighbours,
        loss=negative_sampling_loss,
        optimizer="adagrad",
        lr=0.3,
        batch=256,
        train=8192,
        facts={},
        long=True,
    ),
}
