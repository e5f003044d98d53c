"""Healthy trainings of models of transformers, built from small configurations."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from benchmarks.healthy.data import FIRST, WORDS, chain, pictures, topics
from benchmarks.healthy.recipe import Recipe, batches, own_loss

LENGTH = 32
PAD, START, END, MASK = range(FIRST)
SPECIAL = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}


def next_tokens(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows whose next token is to be predicted."""
    tokens = chain(source, rows, LENGTH)
    return {"input_ids": tokens, "labels": tokens}


def masked_tokens(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows in which some tokens are masked and to be found; the ends of some are padding."""
    tokens = topics(source, rows, LENGTH)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (rows, 1), generator=source)
    kept = torch.arange(LENGTH) < lengths
    hidden = (torch.rand(tokens.shape, generator=source) < 0.15) & kept
    hidden[:, 1] = True
    shown = torch.where(hidden, MASK, tokens).masked_fill(~kept, PAD)
    return {"input_ids": shown, "attention_mask": kept.long(), "labels": torch.where(hidden, tokens, -100)}


def translations(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows to be put into another alphabet, word by word."""
    tokens = chain(source, rows, LENGTH // 2)
    alphabet = FIRST + torch.randperm(WORDS - FIRST, generator=torch.Generator().manual_seed(9))
    labels = torch.cat([alphabet[tokens - FIRST], torch.full((rows, 1), END)], 1)
    return {"input_ids": tokens, "labels": labels}


def labelled_pictures(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return pictures and their classes."""
    pixels, labels = pictures(source, rows)
    return {"pixel_values": pixels, "labels": labels}


def gpt2() -> nn.Module:
    """Return a small GPT-2."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(vocab_size=WORDS, n_positions=LENGTH, n_embd=64, n_layer=3, n_head=4, **SPECIAL))


def llama() -> nn.Module:
    """Return a small Llama."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=LENGTH,
            **SPECIAL,
        )
    )


def bert() -> nn.Module:
    """Return a small BERT that finds masked words."""
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(
        BertConfig(
            vocab_size=WORDS,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=LENGTH,
            pad_token_id=PAD,
        )
    )


def t5() -> nn.Module:
    """Return a small T5."""
    from transformers import T5Config, T5ForConditionalGeneration

    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=WORDS,
            d_model=64,
            d_kv=16,
            d_ff=128,
            num_layers=2,
            num_heads=4,
            decoder_start_token_id=PAD,
            pad_token_id=PAD,
            eos_token_id=END,
        )
    )


def bart() -> nn.Module:
    """Return a small BART."""
    from transformers import BartConfig, BartForConditionalGeneration

    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=WORDS,
            d_model=64,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=128,
            decoder_ffn_dim=128,
            max_position_embeddings=LENGTH,
            decoder_start_token_id=END,
            forced_eos_token_id=None,
            **SPECIAL,
        )
    )


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


def mamba() -> nn.Module:
    """Return a small Mamba."""
    from transformers import MambaConfig, MambaForCausalLM

    return MambaForCausalLM(
        MambaConfig(vocab_size=WORDS, hidden_size=48, state_size=8, num_hidden_layers=2, use_mambapy=False, **SPECIAL)
    )


class Adapted(nn.Module):
    """A frozen linear layer, and beside it a product of two thin matrices that is trained.

    Args:
        base: The layer; a `Conv1D` of transformers.
        rank: Width of the thin matrices.
        alpha: Times `1 / rank`: how much their product counts.
    """

    def __init__(self, base: Any, *, rank: int = 8, alpha: float = 16.0) -> None:
        super().__init__()
        self.base, self.scale = base, alpha / rank
        self.lora_A = nn.Linear(base.nx, rank, bias=False)
        self.lora_B = nn.Linear(rank, base.nf, bias=False)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., E)."""
        found: Tensor = self.base(x) + self.scale * self.lora_B(self.lora_A(x))
        return found


def lora() -> nn.Module:
    """Return a GPT-2 that knows one language, with adapters that are to learn another."""
    model = gpt2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rows = {"input_ids": chain(torch.Generator().manual_seed(5), 1024, LENGTH, shift=1)}
    source = batches(rows, 16, 5)
    for _ in range(120):
        batch = next(source)
        own_loss(model, batch | {"labels": batch["input_ids"]}).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    for parameter in model.parameters():
        parameter.requires_grad_(requires_grad=False)
    for block in model.transformer.h:
        block.attn.c_attn = Adapted(block.attn.c_attn)
        block.mlp.c_fc = Adapted(block.mlp.c_fc)
    return model


TEXT = Recipe(
    model=gpt2, rows=next_tokens, through="transformers", lr=2e-3, schedule="linear", warmup=20, clip=1.0, weight_decay=0.01
)
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
    "gpt2": TEXT,
    "llama": replace(TEXT, model=llama, schedule="cosine", weight_decay=0.1),
    "bert": replace(TEXT, model=bert, rows=masked_tokens, lr=1e-3),
    "t5": replace(
        TEXT, model=t5, rows=translations, optimizer="adafactor", schedule="constant", warmup=0, lr=1e-3, weight_decay=0.0
    ),
    "bart": replace(TEXT, model=bart, rows=translations, lr=1e-3, batch=32),
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
    "mamba": replace(TEXT, model=mamba, lr=3e-3, train=1024, batch=8),
    "lora": replace(TEXT, model=lora, lr=3e-3, warmup=0),
}
