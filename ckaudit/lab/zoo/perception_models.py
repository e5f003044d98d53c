"""Models of pictures and sound from transformers, with small configurations."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from ckaudit.lab.zoo.recipe import Batch, Recipe
from ckaudit.lab.zoo.synthetic_data import FIRST, WORDS, chain, pictures
from ckaudit.lab.zoo.text_models import END, LENGTH, PAD, SPECIAL, START, TEXT


def labelled_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures and their classes."""
    pixels, labels = pictures(source, rows)
    return {"pixel_values": pixels, "labels": labels}


def vit() -> nn.Module:
    """Return a small vision transformer."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            image_size=32,
            patch_size=8,
            num_labels=10,
        )
    )


def swin() -> nn.Module:
    """Return a small Swin."""
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(
        SwinConfig(image_size=32, patch_size=2, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10)
    )


def convnext() -> nn.Module:
    """Return a small ConvNeXt."""
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(
        ConvNextConfig(hidden_sizes=[16, 32, 64], depths=[1, 2, 1], num_stages=3, image_size=32, patch_size=2, num_labels=10)
    )


def resnet() -> nn.Module:
    """Return a small ResNet."""
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(
        ResNetConfig(embedding_size=16, hidden_sizes=[16, 32, 64], depths=[2, 2, 2], layer_type="basic", num_labels=10)
    )


HALF = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}


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


def heard(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return spectra of spoken words, and the words."""
    words = chain(source, rows, 12)
    spectra = torch.randn(WORDS, 8, generator=torch.Generator().manual_seed(3))[words].repeat_interleave(4, 1)
    spectra = spectra + 0.3 * torch.randn(spectra.shape, generator=source)
    return {"input_features": spectra.transpose(1, 2).contiguous(), "labels": torch.cat([words, torch.full((rows, 1), END)], 1)}


def wav2vec2() -> nn.Module:
    """Return a small wav2vec 2.0 that transcribes sounds by connectionist temporal classification."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    return Wav2Vec2ForCTC(
        Wav2Vec2Config(
            vocab_size=LETTERS,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=64,
            conv_dim=(16, 24),
            conv_kernel=(16, 8),
            conv_stride=(8, 4),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=4,
            mask_time_prob=0.0,
            layerdrop=0.0,
            ctc_loss_reduction="mean",
            ctc_zero_infinity=True,
            pad_token_id=PAD,
        )
    )


LETTERS = 8  # the first of them is the blank


def spoken(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return sound waves (rows, 640) of four letters, each with its own tone, and the letters; no letter repeats directly."""
    steps = torch.randint(1, LETTERS - 1, (rows, 4), generator=source)
    letters = 1 + steps.cumsum(1) % (LETTERS - 1)
    time = torch.arange(160)
    phase = torch.rand(rows, 4, 1, generator=source) * 6.28
    tones = torch.sin(phase + letters[..., None] * 0.2 * time).flatten(1)
    return {"input_values": tones + 0.2 * torch.randn(tones.shape, generator=source), "labels": letters}


class Clip(nn.Module):
    """A small CLIP that computes its own loss."""

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
        loss: Tensor = self.clip(input_ids=words, pixel_values=picture, return_loss=True).loss
        return loss


def captioned(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures, and words that describe them."""
    seen, kinds = pictures(source, rows)
    words = FIRST + kinds[:, None] * 6 + torch.randint(0, 6, (rows, 8), generator=source)
    ends = (torch.full((rows, 1), START), torch.full((rows, 1), END))
    return {"words": torch.cat([ends[0], words, ends[1]], 1), "picture": seen}


def contrastive_loss(model: Any, batch: Batch) -> Tensor:
    """Return the loss that the model computes."""
    loss: Tensor = model(batch["words"], batch["picture"])
    return loss


IMAGE = Recipe(
    model=vit,
    rows=labelled_pictures,
    through="transformers",
    lr=1e-3,
    schedule="cosine",
    warmup=20,
    clip=1.0,
    weight_decay=0.05,
    train=1024,
)
FAMILIES = {
    "vit": IMAGE,
    "swin": replace(IMAGE, model=swin),
    "convnext": replace(IMAGE, model=convnext, warmup=0, clip=None),
    "resnet": replace(
        IMAGE,
        model=resnet,
        optimizer="sgd",
        momentum=0.9,
        lr=0.05,
        warmup=0,
        clip=None,
        weight_decay=1e-4,
        batch=32,
        through="loop",
        schedule="onecycle",
    ),
    "whisper": replace(TEXT, model=whisper, rows=heard, lr=1e-3, batch=32),
    "wav2vec2": replace(TEXT, model=wav2vec2, rows=spoken, lr=3e-3, batch=16, train=1024),
    "clip": Recipe(model=Clip, rows=captioned, loss=contrastive_loss, lr=5e-4, batch=32, train=4096, warmup=20),
}
