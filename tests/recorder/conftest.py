import gc

import msgspec
import pytest
import torch
from torch import nn

from ckaudit.contract.io.files import read_bytes
from ckaudit.contract.schema.checkpoint import Checkpoint
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.recorder import Recorder
from ckaudit.recorder.files import run_folder

VOCABULARY, LENGTH = 17, 8

torch.set_num_threads(1)


class Attention(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(size, size) for _ in range(4))
        self.logits, self.probabilities = nn.Identity(), nn.Identity()

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (layer(x).view(batch, length, self.heads, -1).transpose(1, 2) for layer in (self.q, self.k, self.v))
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        logits = self.logits((q @ k.transpose(-1, -2) * k.shape[-1] ** -0.5).masked_fill(later, -torch.inf))
        return self.o((self.probabilities(logits.softmax(-1)) @ v).transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, size, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(size), Attention(size, heads), nn.LayerNorm(size)
        self.mlp = nn.Sequential(nn.Linear(size, 2 * size), nn.ReLU(), nn.Linear(2 * size, size))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class TinyGPT(nn.Module):
    """Two blocks; the head is registered first, so that order of registration and of the forward pass differ."""

    def __init__(self, *, tied=False, size=8, heads=2):
        super().__init__()
        self.head = nn.Linear(size, VOCABULARY, bias=False)
        self.embed = nn.Embedding(VOCABULARY, size)
        self.blocks = nn.ModuleList(Block(size, heads) for _ in range(2))
        self.norm = nn.LayerNorm(size)
        if tied:
            self.embed.weight = self.head.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@pytest.fixture(autouse=True, scope="module")
def little_to_collect(request):
    """Set aside what the libraries of the trainers made: each training ends with a look through all there is for garbage."""
    if request.path.stem.startswith("test_trainers_"):
        gc.collect()
        gc.freeze()


@pytest.fixture
def no_waits(monkeypatch):
    """Have what a disk does not take tried again at once, where it is broken for good."""
    monkeypatch.setattr(run_folder, "sleep", lambda _: None)


@pytest.fixture
def tiny():
    """Return a maker of tiny models, always the same for one seed."""

    def make(seed=0, **kwargs):
        torch.manual_seed(seed)
        return TinyGPT(**kwargs)

    return make


@pytest.fixture
def batches():
    """Return a maker of n batches of inputs and next tokens."""

    def make(count, seed=0):
        source = torch.Generator().manual_seed(seed)
        tokens = torch.randint(0, VOCABULARY, (count, 4, LENGTH + 1), generator=source)
        return [(part[:, :-1], part[:, 1:]) for part in tokens]

    return make


@pytest.fixture
def loss_of():
    """Return the loss of a model on one batch."""
    return lambda model, batch: nn.functional.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@pytest.fixture
def train(batches, loss_of):
    """Return a training loop: `train(model, steps, folder, ...)`; without a folder nothing is recorded."""

    def run(model, steps, folder=None, *, close=True, clip=None, spoil=None, data_seed=0, **kwargs):
        optimizer = kwargs.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), lr=1e-2)
        recorder = Recorder(model, folder, optimizer=optimizer, **kwargs) if folder else None
        for step, batch in enumerate(batches(steps, data_seed), 1):
            loss = loss_of(model, batch)
            loss = loss if spoil is None else spoil(step, loss)
            optimizer.zero_grad()
            loss.backward()
            if recorder:
                recorder.after_backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if recorder:
                recorder.step(loss, batch=batch)
        if recorder and close:
            recorder.close()
        return recorder

    return run


@pytest.fixture
def read():
    """Return a reader of one checkpoint as the contract's own type."""

    def checkpoint(folder, step):
        (path,) = folder.glob(f"analysis_checkpoint_step_{step:08d}.json*")
        return msgspec.json.decode(read_bytes(path, path.name), type=Checkpoint)

    return checkpoint


@pytest.fixture
def manifest():
    """Return a reader of run.json as the contract's own type."""
    return lambda folder: msgspec.json.decode((folder / "run.json").read_bytes(), type=Manifest)


@pytest.fixture
def lines():
    """Return a reader of scalars.jsonl."""
    return lambda folder: [msgspec.json.decode(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]


@pytest.fixture
def steps_of():
    """Return a reader of the steps that have a checkpoint."""
    return lambda folder: sorted(int(path.name[25:33]) for path in folder.glob("analysis_checkpoint_step_*.json*"))
