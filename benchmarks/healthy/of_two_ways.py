"""Healthy trainings of models whose attention, loss or optimizer is not that of a plain language model."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from benchmarks.healthy.data import FIRST, WORDS, chain, pictures, topics
from benchmarks.healthy.of_transformers import END, LENGTH, PAD, SPECIAL, START, TEXT, bert, masked_tokens
from benchmarks.healthy.recipe import Batch, Recipe

SIZES = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": LENGTH,
}
ASKED = 10  # tokens of a question, which are read both ways


class PrefixLm(nn.Module):
    """A language model that reads a question both ways, and writes the rest in order."""

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
        found: Tensor = self.head(x)
        return found


def continued(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return tokens, and the next of each; those of the question are not asked for."""
    tokens = chain(source, rows, LENGTH + 1)
    targets = tokens[:, 1:].clone()
    targets[:, : ASKED - 1] = -100
    return {"x": tokens[:, :-1], "y": targets}


def told_next(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the next token where it is asked for."""
    return F.cross_entropy(model(batch["x"]).flatten(0, 1).float(), batch["y"].flatten())


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
        found: Tensor = self.head(self.transformer(read, written, tgt_mask=mask, tgt_is_causal=True))
        return found


def two_languages(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return sentences, their translation as far as it is known, and its next token."""
    tokens = chain(source, rows, LENGTH // 2)
    alphabet = FIRST + torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(9))
    written = torch.cat([torch.full((rows, 1), START), alphabet[tokens - FIRST], torch.full((rows, 1), END)], 1)
    return {"source": tokens, "x": written[:, :-1], "y": written[:, 1:]}


def translated(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the translation."""
    return F.cross_entropy(model(batch["source"], batch["x"]).flatten(0, 1).float(), batch["y"].flatten())


class Pooled(nn.Module):
    """A BERT whose hidden states are averaged for a head of the user's own; its pooling layer runs for nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bert, self.head = bert().bert, nn.Linear(64, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to logits (B, 4)."""
        found: Tensor = self.head(self.bert(tokens).last_hidden_state.mean(1))
        return found


def sorted_texts(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return texts and the kind of their topic."""
    tokens = topics(source, rows, LENGTH)
    return {"x": tokens, "y": (tokens[:, 0] - FIRST) // 6 % 4}


def classified(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of classes."""
    return F.cross_entropy(model(batch["x"]).float(), batch["y"])


class Twins(nn.Module):
    """Learns without labels: one half predicts what the other, an average of its past, says of another view."""

    def __init__(self) -> None:
        super().__init__()
        self.online, self.teacher = self._encoder(), self._encoder().requires_grad_(requires_grad=False)
        self.predictor = nn.Sequential(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 32))
        self.teacher.load_state_dict(self.online.state_dict())

    def _encoder(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, 2, 1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
            nn.Linear(128, 32),
        )

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """Return the distance (B) of two views."""
        if self.training:
            with torch.no_grad():
                for kept, new in zip(self.teacher.parameters(), self.online.parameters(), strict=True):
                    kept.lerp_(new, 0.02)
        said, wanted = self.predictor(self.online(one)), self.teacher(other)
        return 2 - 2 * F.cosine_similarity(said, wanted.detach(), dim=1)


def two_views(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures twice, each time with other noise."""
    clean, _ = pictures(source, rows, noise=0.3)
    return {name: clean + 0.5 * torch.randn(clean.shape, generator=source) for name in ("one", "other")}


def apart(model: Any, batch: Batch) -> Tensor:
    """Return the mean distance of the views."""
    found: Tensor = model(batch["one"], batch["other"]).mean()
    return found


class Denoiser(nn.Module):
    """Tells the noise in a picture; every block begins as nothing, for its last convolution is zero."""

    def __init__(self, width: int = 24, depth: int = 3) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width))
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1)) for _ in range(depth)
        )
        for layer in (self.last, *(block[2] for block in self.blocks)):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        """Map noisy pictures (B, 3, H, W) at times (B) to their noise."""
        angles = time[:, None] * 2.0 ** torch.arange(8)
        at = self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x + at)
        found: Tensor = self.last(x)
        return found


def to_be_noised(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures, times and noise."""
    clean, _ = pictures(source, rows, size=16, noise=0.1)
    return {"x": clean, "time": torch.rand(rows, generator=source), "noise": torch.randn(clean.shape, generator=source)}


def noise_told(model: Any, batch: Batch) -> Tensor:
    """Return the mean squared error of the noise."""
    angle = batch["time"] * torch.pi / 2
    mixed = angle.cos()[:, None, None, None] * batch["x"] + angle.sin()[:, None, None, None] * batch["noise"]
    return F.mse_loss(model(mixed, batch["time"]).float(), batch["noise"])


def mixtral() -> nn.Module:
    """Return a small Mixtral."""
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(**SIZES, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2, **SPECIAL)
    )


def gemma() -> nn.Module:
    """Return a small Gemma 3, of which most layers see a window alone."""
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = SIZES | {"num_hidden_layers": 3}
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, num_key_value_heads=2, head_dim=16, sliding_window=8, **SPECIAL))


def electra() -> nn.Module:
    """Return a small ELECTRA that finds masked words."""
    from transformers import ElectraConfig, ElectraForMaskedLM

    return ElectraForMaskedLM(ElectraConfig(**SIZES, embedding_size=32, pad_token_id=PAD))


def deberta() -> nn.Module:
    """Return a small DeBERTa, whose attention knows where tokens stand by a part of its own."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    sides = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_buckets": 16}
    return DebertaV2ForMaskedLM(DebertaV2Config(**SIZES, **sides, pad_token_id=PAD))


def whisper() -> nn.Module:
    """Return a small Whisper."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    halves = {f"{half}_{part}": size for half in ("encoder", "decoder") for part, size in HALF.items()}
    return WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=WORDS,
            num_mel_bins=8,
            d_model=64,
            **halves,
            max_source_positions=24,
            max_target_positions=LENGTH,
            decoder_start_token_id=START,
            suppress_tokens=None,
            begin_suppress_tokens=None,
            **SPECIAL,
        )
    )


HALF = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}


def heard(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return spectra of spoken words, and the words."""
    words = chain(source, rows, 12)
    spectra = torch.randn(WORDS, 8, generator=torch.Generator().manual_seed(3))[words].repeat_interleave(4, 1)
    spectra = spectra + 0.3 * torch.randn(spectra.shape, generator=source)
    return {"input_features": spectra.transpose(1, 2).contiguous(), "labels": torch.cat([words, torch.full((rows, 1), END)], 1)}


class Clip(nn.Module):
    """A small CLIP, with the loss of its own that it computes where it is asked to."""

    def __init__(self) -> None:
        from transformers import CLIPConfig, CLIPModel

        super().__init__()
        tower = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
        text = tower | {"vocab_size": WORDS, "max_position_embeddings": 16} | SPECIAL
        self.clip = CLIPModel(
            CLIPConfig(text_config=text, vision_config=tower | {"image_size": 32, "patch_size": 8}, projection_dim=32)
        )

    def forward(self, words: Tensor, picture: Tensor) -> Tensor:
        """Return the contrastive loss."""
        found: Tensor = self.clip(input_ids=words, pixel_values=picture, return_loss=True).loss
        return found


def captioned(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures, and words that say what they show."""
    seen, kinds = pictures(source, rows)
    words = FIRST + kinds[:, None] * 6 + torch.randint(0, 6, (rows, 8), generator=source)
    ends = (torch.full((rows, 1), START), torch.full((rows, 1), END))
    return {"words": torch.cat([ends[0], words, ends[1]], 1), "picture": seen}


def matched(model: Any, batch: Batch) -> Tensor:
    """Return the loss that the model computes."""
    found: Tensor = model(batch["words"], batch["picture"])
    return found


LOOP = Recipe(model=PrefixLm, rows=continued, loss=told_next, lr=2e-3, facts={"vocabulary": WORDS, "sequence_length": LENGTH})
FAMILIES = {
    "prefix_lm": LOOP,
    "translator": replace(LOOP, model=Translator, rows=two_languages, loss=translated, through="lightning", lr=1e-3, clip=1.0),
    "bert_with_a_head": replace(LOOP, model=Pooled, rows=sorted_texts, loss=classified, facts={}, lr=5e-4),
    "bert_by_sgd": replace(
        LOOP, model=Pooled, rows=sorted_texts, loss=classified, facts={}, optimizer="sgd", lr=0.01, batch=32, warmup=20
    ),
    "mixtral": replace(TEXT, model=mixtral),
    "gemma": replace(TEXT, model=gemma),
    "electra": replace(TEXT, model=electra, rows=masked_tokens, lr=1e-3),
    "deberta": replace(TEXT, model=deberta, rows=masked_tokens, lr=1e-3),
    "whisper": replace(TEXT, model=whisper, rows=heard, lr=1e-3, batch=32),
    "clip": replace(LOOP, model=Clip, rows=captioned, loss=matched, facts={}, lr=5e-4, batch=32, train=4096, warmup=20),
    "byol": replace(LOOP, model=Twins, rows=two_views, loss=apart, facts={}, lr=1e-3, batch=64, train=1024),
    "diffusion": replace(LOOP, model=Denoiser, rows=to_be_noised, loss=noise_told, facts={}, lr=1e-3, batch=16, train=1024),
}
