"""A canary: 200 steps of a small model, a few seconds on one core, recorded so that `ckaudit gate` can judge it."""

import argparse
import tomllib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ckaudit.recorder import Recorder

TOKENS, LENGTH, BATCH, STEPS = 31, 24, 16, 200


class Model(nn.Module):
    """Two transformer layers that see only what came before."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(TOKENS, width)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, TOKENS)
        nn.init.normal_(self.tokens.weight, std=0.02)
        nn.init.normal_(self.head.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits (N, T, V)."""
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        x = self.tokens(tokens) + self.places(torch.arange(LENGTH))
        return self.head(self.blocks(x, mask=mask, is_causal=True))


def batch(chance: torch.Generator, size: int = BATCH) -> tuple[Tensor, Tensor]:
    """Return tokens of which each follows from the one before it, but for one in ten, with what follows each."""
    tokens = torch.randint(0, TOKENS, (size, LENGTH + 1), generator=chance)
    drawn = torch.rand(size, LENGTH + 1, generator=chance) < 0.1
    for place in range(1, LENGTH + 1):
        told = (3 * tokens[:, place - 1] + 7) % TOKENS
        tokens[:, place] = torch.where(drawn[:, place], tokens[:, place], told)
    return tokens[:, :-1], tokens[:, 1:]


def loss_of(model: Model, inputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy in nats per token."""
    return nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def recorder_of(run: Path, model: Model, optimizer: torch.optim.Optimizer, seed: int, recipe: dict[str, Any]) -> Recorder:
    """Return what records a training into `run`."""
    return Recorder(
        model,
        run,
        optimizer=optimizer,
        config=recipe,
        vocabulary=TOKENS,
        sequence_length=LENGTH,
        seed=seed,
        clip_norm=recipe["clip_norm"],
        warmup_steps=recipe["warmup_steps"],
        planned_steps=STEPS,
    )


def train(run: Path, seed: int, recipe: dict[str, Any]) -> float:
    """Train once, recorded into `run`, and return the last loss."""
    torch.manual_seed(seed)
    chance, held_out = torch.Generator().manual_seed(seed), batch(torch.Generator().manual_seed(0), 64)
    model = Model(recipe["width"], recipe["heads"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe["learning_rate"], weight_decay=recipe["weight_decay"])
    recorder = recorder_of(run, model, optimizer, seed, recipe)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = recipe["learning_rate"] * min(1.0, (step + 1) / recipe["warmup_steps"])
        inputs, targets = batch(chance)
        loss = loss_of(model, inputs, targets)
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe["clip_norm"])
        optimizer.step()
        recorder.log(tokens_seen=(step + 1) * targets.numel())
        recorder.step(loss, batch=(inputs, targets))
        if step % 20 == 19:
            with torch.no_grad():
                recorder.log_after(val_loss=loss_of(model, *held_out).item())
    recorder.close()
    return loss.item()


def main() -> None:
    """Train by the recipe beside this file, once with each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="each run is recorded into a folder in it, named after its seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    recipe = tomllib.loads((Path(__file__).parent / "recipe.toml").read_text())
    for seed in asked.seeds:
        run = asked.folder / str(seed)
        print(f"{run}: loss {train(run, seed, recipe):.3f}")


if __name__ == "__main__":
    main()
