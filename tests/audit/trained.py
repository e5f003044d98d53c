"""A small language model, trained by lines of the recorder as they are printed."""

import os
from pathlib import Path


def small_gpt():
    """Return a model of two blocks with attention, always the same one."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm_1, self.norm_2 = nn.LayerNorm(8), nn.LayerNorm(8)
            self.q, self.k, self.v, self.o = (nn.Linear(8, 8) for _ in range(4))
            self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

        def forward(self, x):
            h = self.norm_1(x)
            q, k, v = (part(h).unflatten(2, (2, 4)).transpose(1, 2) for part in (self.q, self.k, self.v))
            seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(seen.transpose(1, 2).flatten(2))
            return x + self.down(self.act(self.up(self.norm_2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.blocks, self.head = nn.Embedding(11, 8), nn.ModuleList([Block(), Block()]), nn.Linear(8, 11)

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = block(x)
            return self.head(x)

    torch.manual_seed(0)
    return GPT()


def batch(step):
    """Return inputs and targets of a step, shape (4, 31): each token but the first follows from the one before.

    Rows are as long as the recorder asks of those that it compares.
    """
    import torch

    first = torch.randint(11, (4, 1), generator=torch.Generator().manual_seed(step))
    tokens = (first * 7 + 3 * torch.arange(32)) % 11
    return tokens[:, :-1], tokens[:, 1:]


def trained(code, folder, *, model=None, steps=30):
    """Run lines of a program as they are printed, those of the loop in each step, and return the run folder.

    The lines before `loss.backward()` come once before, the last one once after; three dots of an evaluation are 2.0.
    """
    import torch

    folder.mkdir(exist_ok=True)
    before = Path.cwd()
    os.chdir(folder)
    try:
        model = model or small_gpt()
        names = {"model": model, "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01)}
        lines = code.splitlines()
        loop = lines.index("loss.backward()  # yours")
        exec("\n".join(lines[:loop]), names)
        for step in range(steps):
            inputs, targets = batch(step)
            names["optimizer"].zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
            own = names | {"loss": loss, "inputs": inputs, "targets": targets}
            exec("\n".join(lines[loop:-1]).replace("...", "2.0"), own)
        exec(lines[-1], names)
    finally:
        os.chdir(before)
    return folder / "run"
