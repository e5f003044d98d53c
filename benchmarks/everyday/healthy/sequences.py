"""Trainings on series, texts and sequences of tokens."""

import math
from functools import partial

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from torch.optim import Adam, AdamW
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.everyday.data import Batch, Batches, source, task_source, text, windows
from benchmarks.everyday.healthy import healthy, on_stream, on_table
from benchmarks.everyday.models import Gpt, Lstm, TokenCrossEntropy
from benchmarks.everyday.training import Training

LETTERS = 60


@healthy
def forecast() -> Training:
    """An LSTM that continues a series, with clipped gradients."""
    time = torch.arange(3_000)
    series = torch.sin(0.1 * time) + 0.3 * torch.sin(0.37 * time) + 0.1 * torch.randn(3_000, generator=source(1))
    parts = series.unfold(0, 25, 1)
    data = (parts[:, :24, None], parts[:, 24:])
    model = Lstm(1, width=32)
    return on_table(model, data, partial(Adam, lr=1e-3), rows=64, steps=500, clip=1.0, criterion=nn.MSELoss())


class BidirectionalGru(nn.Module):
    """A GRU in both directions over embedded words, with outputs for each of them."""

    def __init__(self, embedding: nn.Module, width: int, outputs: int) -> None:
        super().__init__()
        self.embedding, self.gru = embedding, nn.GRU(48, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Map inputs (B, T) or (B, T, D) to outputs (B, T, outputs)."""
        return self.head(self.gru(self.embedding(x))[0])


def _padded(rows: int, drawn: Generator) -> Batch:
    """Return texts of 8 to 30 words, padded with zeros, whose first words tell which of two kinds they are."""
    labels = torch.randint(2, (rows,), generator=drawn)
    words = torch.randint(1, 500, (rows, 30), generator=drawn)
    words[:, :6] = torch.randint(1, 20, (rows, 6), generator=drawn) + 100 * labels[:, None]
    lengths = torch.randint(8, 31, (rows, 1), generator=drawn)
    return words.masked_fill(torch.arange(30) >= lengths, 0), labels


@healthy
def padded_texts() -> Training:
    """A bidirectional GRU on texts of many lengths, padded."""
    model = BidirectionalGru(nn.Embedding(500, 48, padding_idx=0), 64, 2)
    data = _padded(3_000, source(1))

    def criterion(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs.mean(1), labels)

    return on_table(model, data, partial(Adam, lr=1e-3), steps=300, criterion=criterion)


def _warmup_and_cosine(step: int) -> float:
    return min((step + 1) / 20, 1) * (0.1 + 0.45 * (1 + math.cos(math.pi * min(step / 400, 1))))


def _letters() -> tuple[Tensor, Batch]:
    """Return the letters to train on, and windows of the others to hold out."""
    letters = text(40_000, letters=LETTERS)
    return letters[:36_000], windows(letters[36_000:], 32, source(2))


@healthy
def letters_by_transformer() -> Training:
    """A language model of letters, AdamW with warmup, cosine and clipped gradients."""
    letters, held_out = _letters()
    optimizer = partial(AdamW, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    rest = {"criterion": TokenCrossEntropy(), "schedule": partial(LambdaLR, lr_lambda=_warmup_and_cosine), "clip": 1.0}
    training = on_stream(Gpt(LETTERS), partial(windows, letters), optimizer, rows=16, steps=400, held_out=0, **rest)
    training.held_out, training.facts = held_out, {"vocabulary": LETTERS}
    return training


class LetterLstm(nn.Module):
    """An LSTM that predicts the next letter."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(LETTERS, 32), nn.LSTM(32, width, batch_first=True)
        self.head = nn.Linear(width, LETTERS)

    def forward(self, letters: Tensor) -> Tensor:
        """Map letters (B, T) to logits (B, T, letters)."""
        return self.head(self.lstm(self.embedding(letters))[0])


@healthy
def letters_by_lstm() -> Training:
    """An LSTM of letters, Adam with gradients clipped to 0.25."""
    letters, held_out = _letters()
    rest = {"criterion": TokenCrossEntropy(), "clip": 0.25}
    optimizer = partial(Adam, lr=2e-3)
    training = on_stream(LetterLstm(), partial(windows, letters), optimizer, rows=16, steps=400, held_out=0, **rest)
    training.held_out = held_out
    return training


def _spoken(rows: int, drawn: Generator) -> Batch:
    """Return noisy sounds (rows, 20, 48) of five words each, four long, and the words (rows, 5)."""
    sounds = torch.randn(6, 48, generator=task_source(3))
    words = torch.randint(1, 6, (rows, 5), generator=drawn)
    heard = sounds[words].repeat_interleave(4, 1)
    return heard + 0.8 * torch.randn(heard.shape, generator=drawn), words


@healthy
def ctc() -> Training:
    """Speech in small: a bidirectional GRU with the CTC loss."""

    def criterion(outputs: Tensor, words: Tensor) -> Tensor:
        times, lengths = (torch.full((len(words),), length) for length in (outputs.shape[1], words.shape[1]))
        return F.ctc_loss(F.log_softmax(outputs, -1).transpose(0, 1), words, times, lengths)

    model = BidirectionalGru(nn.Identity(), 48, 6)
    return on_stream(model, _spoken, partial(Adam, lr=2e-3), rows=16, held_out=64, steps=400, criterion=criterion)


class Translator(nn.Module):
    """An encoder and a decoder as PyTorch brings them."""

    def __init__(self, words: int = 30, width: int = 48) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(words, width), nn.Embedding(32, width)
        self.transformer = nn.Transformer(width, 4, 2, 2, 96, 0.0, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, given: Tensor, written: Tensor) -> Tensor:
        """Map what is given (B, T) and what is written so far (B, S) to logits (B, S, words) of what comes next."""
        mask = nn.Transformer.generate_square_subsequent_mask(written.shape[1])
        mixed = self.transformer(self._embedded(given), self._embedded(written), tgt_mask=mask, tgt_is_causal=True)
        return self.head(mixed)

    def _embedded(self, tokens: Tensor) -> Tensor:
        return self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))


def _reversals(rows: int, drawn: Generator) -> Batch:
    """Return sequences of ten words, and the same backwards behind a word that begins them."""
    words = torch.randint(2, 30, (rows, 10), generator=drawn)
    return words, torch.cat([torch.ones(rows, 1, dtype=torch.long), words.flip(1)], 1)


@healthy
def reversed_sequences() -> Training:
    """A transformer of encoder and decoder that learns to write backwards."""
    model = Translator()

    def loss(batch: Batch) -> Tensor:
        given, wanted = batch
        return F.cross_entropy(model(given, wanted[:, :-1]).transpose(1, 2), wanted[:, 1:])

    optimizer = partial(Adam, lr=1e-3, betas=(0.9, 0.98))
    return on_stream(model, _reversals, optimizer, rows=32, held_out=100, steps=500, loss=loss, clip=1.0)


class DigitGru(nn.Module):
    """A GRU that classifies a sequence of digits by its last state."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.head = nn.Embedding(10, 32), nn.GRU(32, 64, batch_first=True), nn.Linear(64, 10)

    def forward(self, digits: Tensor) -> Tensor:
        """Map digits (B, T) to logits (B, 10)."""
        return self.head(self.gru(self.embedding(digits))[0][:, -1])


def _longer_and_longer(rows: int, drawn: Generator) -> Batches:
    """Yield sequences of digits and the largest of each, a digit longer after every 150 batches."""
    length = 2
    while True:
        length += 1
        for _ in range(150):
            digits = torch.randint(10, (rows, length), generator=drawn)
            yield digits, digits.max(1).values


@healthy
def growing_lengths() -> Training:
    """A curriculum: sequences that get longer, without a validation."""
    batches = _longer_and_longer(64, source(1))
    return Training(model=DigitGru(), optimizer=partial(Adam, lr=3e-3), steps=600, batches=batches, clip=1.0)
