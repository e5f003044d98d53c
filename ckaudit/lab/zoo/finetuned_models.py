"""Pretrained models of which a small part is trained: biases, a prompt, low-rank matrices, a head."""

from typing import Any

import torch
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name

from ckaudit.lab.zoo.perception_models import IMAGE, vit
from ckaudit.lab.zoo.picture_models import Cnn, seen
from ckaudit.lab.zoo.recipe import Batch, Recipe, classified, own_loss, pretrained
from ckaudit.lab.zoo.synthetic_data import chain, pictures
from ckaudit.lab.zoo.text_models import LENGTH, TEXT, gpt2, llama


def other_pictures(rows: int) -> tuple[Tensor, Tensor]:
    """Return pictures of the same patterns with other noise and other classes, for pretraining."""
    pixels, labels = pictures(torch.Generator().manual_seed(11), rows, noise=1.2)
    return pixels, (3 * labels + 1) % 10


def biases_of_a_vit() -> nn.Module:
    """Return a vision transformer whose biases, norms and head are trained (BitFit; Ben Zaken et al. 2022, arXiv:2106.10199)."""
    pixels, labels = other_pictures(512)
    model = pretrained(vit(), {"pixel_values": pixels, "labels": labels}, own_loss)
    for name, weight in model.named_parameters():
        weight.requires_grad_("bias" in name or "norm" in name or "classifier" in name)
    return model


def probe() -> nn.Module:
    """Return a convolutional network of which only the last layer, newly initialised, is trained: a linear probe."""
    x, y = other_pictures(512)
    model = pretrained(Cnn(), {"x": x, "y": y}, classified)
    model.classifier[4] = nn.Linear(64, 10)
    return model


class PromptTuned(nn.Module):
    """A frozen language model, with trained vectors before its tokens (Lester et al. 2021, arXiv:2104.08691)."""

    def __init__(self, length: int = 8) -> None:
        super().__init__()
        tokens = torch.cat([chain(torch.Generator().manual_seed(5), 256, LENGTH, shift=shift) for shift in range(4)])
        self.model = pretrained(gpt2(), {"input_ids": tokens, "labels": tokens}, own_loss, steps=120, lr=3e-3)
        table: Tensor = self.model.get_input_embeddings().weight
        self.prompt = nn.Parameter(table[torch.randint(0, len(table), (length,))].detach().clone())

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, T) to the logits of the next (B, T, V)."""
        words = self.model.get_input_embeddings()(tokens)
        both = torch.cat([self.prompt.expand(len(tokens), -1, -1), words], 1)
        logits: Tensor = self.model(inputs_embeds=both).logits[:, len(self.prompt) :]
        return logits


def in_one_language(source: torch.Generator, rows: int) -> dict[str, Tensor]:
    """Return rows of tokens in one of the four languages that the model knows."""
    return {"x": chain(source, rows, LENGTH - 8, shift=1)}


def next_word_loss(model: Any, batch: Batch) -> Tensor:
    """Return the cross entropy of the next token."""
    tokens = batch["x"]
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1).float(), tokens[:, 1:].flatten())


class LowRank(nn.Module):
    """A frozen linear layer with two trained low-rank matrices in parallel (LoRA; Hu et al. 2021, arXiv:2106.09685)."""

    def __init__(self, base: nn.Linear, *, rank: int = 4) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        """Map (..., D) to (..., E)."""
        output: Tensor = self.base(x) + 2 * (x @ self.a.T) @ self.b.T
        return output


def low_rank_vit() -> Any:
    """Return a vision transformer with low-rank matrices at its queries and values, and a new head."""
    pixels, labels = other_pictures(512)
    model = pretrained(vit(), {"pixel_values": pixels, "labels": labels}, own_loss)
    for name, module in [*model.named_modules()]:
        if name.endswith(("q_proj", "v_proj", "query", "value")) and isinstance(module, nn.Linear):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, LowRank(module))
    model.classifier = nn.Linear(64, 10)
    return model


def llama_pretrained_on_another_language(*, steps: int = 120) -> Any:
    """Return a frozen Llama that knows one language so well that it costs more than a uniform guess on any other."""
    tokens = chain(torch.Generator().manual_seed(5), 512, LENGTH, shift=2)
    return pretrained(llama(), {"input_ids": tokens, "labels": tokens}, own_loss, steps=steps, lr=3e-3, batch=16)


def low_rank_llama() -> Any:
    """Return that Llama with low-rank matrices at all projections of its attention and its MLP."""
    model = llama_pretrained_on_another_language()
    for name, module in [*model.named_modules()]:
        if name.endswith("_proj") and isinstance(module, nn.Linear):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, LowRank(module))
    return model


def llama_for_continued_pretraining() -> Any:
    """Return that Llama with all of its weights trainable: continued pretraining in another domain."""
    return llama_pretrained_on_another_language(steps=240).requires_grad_()


PROBE = Recipe(model=probe, rows=seen, loss=classified, optimizer="adam", lr=5e-3, batch=32, train=1024)
FAMILIES = {
    "another_domain": replace(TEXT, model=llama_for_continued_pretraining, lr=3e-4),
    "bitfit": replace(IMAGE, model=biases_of_a_vit, lr=5e-3, warmup=0),
    "linear_probe": PROBE,
    "low_rank_llama": replace(TEXT, model=low_rank_llama, lr=2e-3, warmup=0),
    "lora_vit": replace(IMAGE, model=low_rank_vit, lr=5e-3, warmup=0, clip=1.0),
    "prompt_tuning": replace(
        TEXT, model=PromptTuned, rows=in_one_language, loss=next_word_loss, through="loop", lr=3e-2, warmup=0
    ),
}
