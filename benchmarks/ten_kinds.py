"""Trains ten small healthy models of ten kinds, recorded only by the lines of the README, and prints what triage finds.

    python benchmarks/ten_kinds.py [--only KIND,...] [--seeds 0,1,2] [--folder FOLDER] [--write]

Each is written as a tutorial writes it. Nothing is wrong with any of them, so every finding of sev2 or worse is a false alarm.
The text is that of this project's own pages. `--write` puts the table into docs/first-contact.md.
"""

import argparse
import contextlib
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from pairs import write_table
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  its usual name
from tutorial_models import CharacterLstm, Forecaster, GraphNetwork, LowRank, SmallGpt, Vae

from ckaudit import Recorder
from ckaudit.audit import triage
from ckaudit.contract.schema.report import Report

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "first-contact.md"
KINDS: dict[str, Callable[[Path], tuple[float, float]]] = {}
"""The trainings by name. Each writes to a folder, and returns the loss at the start and at the end."""


def kind(function: Callable[[Path], tuple[float, float]]) -> Callable[[Path], tuple[float, float]]:
    """Register a training in `KINDS`."""
    KINDS[function.__name__] = function
    return function


Batch = tuple[Tensor, ...]
Loss = Callable[[Batch], Tensor]


def fit(
    folder: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Iterator[Batch],
    loss_of: Loss,
    *,
    steps: int = 200,
    held_out: Batch | None = None,
    clip: float | None = None,
    schedule: Any = None,
    **facts: Any,
) -> tuple[float, float]:
    """Train by the loop of the README, with occasional evaluations if rows are held out."""
    losses = []
    recorder = Recorder(model, folder, optimizer=optimizer, planned_steps=steps, **facts)
    for step in range(1, steps + 1):
        batch = next(batches)
        optimizer.zero_grad()
        loss = loss_of(batch)
        loss.backward()
        recorder.after_backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if schedule:
            schedule.step()
        recorder.step(loss, batch=batch)
        losses.append(loss.item())
        if held_out and step % 40 == 0:
            model.eval()
            with torch.no_grad():
                recorder.log_after(val_loss=loss_of(held_out).item())
            model.train()
    recorder.close()
    return ends(losses)


def ends(losses: list[float]) -> tuple[float, float]:
    """Return the means of the first and of the last ten losses."""
    return sum(losses[:10]) / 10, sum(losses[-10:]) / 10


def rows(columns: Batch, size: int) -> Iterator[Batch]:
    """Yield batches of rows, reshuffled in each epoch."""
    while True:
        order = torch.randperm(len(columns[0]))
        for start in range(0, len(order) - size + 1, size):
            yield tuple(column[order[start : start + size]] for column in columns)


def characters(pattern: str) -> Tensor:
    """Return the printable characters of pages of this project, as numbers below 96."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern))[:12])
    return torch.tensor([ord(each) - 32 if 32 <= ord(each) < 127 else 95 for each in text])


def windows(text: Tensor, size: int, length: int) -> Iterator[Batch]:
    """Yield rows of text, and the same shifted by one character."""
    while True:
        yield window(text, size, length)


def window(text: Tensor, size: int, length: int) -> Batch:
    """Return rows of text, and the same shifted by one character."""
    starts = torch.randint(0, len(text) - length - 1, (size,))
    taken = torch.stack([text[start : start + length + 1] for start in starts.tolist()])
    return taken[:, :-1], taken[:, 1:]


def next_token_loss(model: nn.Module) -> Loss:
    """Return the loss function of the next token, a cross entropy."""
    return lambda batch: F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


@kind
def mlp_table(folder: Path) -> tuple[float, float]:
    """Train an MLP on a table with two classes; AdamW."""
    features = torch.randn(3_000, 16)
    labels = ((features[:, 0] * features[:, 1] + features[:, 2]) + 0.3 * torch.randn(3_000) > 0).long()
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    batches = rows((features[:2_500], labels[:2_500]), 64)
    held_out = (features[2_500:], labels[2_500:])
    return fit(folder, model, optimizer, batches, lambda each: F.cross_entropy(model(each[0]), each[1]), held_out=held_out)


def shapes(count: int) -> Batch:
    """Return noisy pictures (count, 1, 16, 16) of bars, crosses and squares at random positions, and their classes."""
    labels = torch.randint(0, 4, (count,))
    pictures = 0.3 * torch.randn(count, 1, 16, 16)
    for picture, label in zip(pictures, labels.tolist(), strict=True):
        top, left = torch.randint(0, 9, (2,)).tolist()
        patch = picture[0, top : top + 7, left : left + 7]
        if label in {0, 2}:
            patch[3] += 1.0
        if label in {1, 2}:
            patch[:, 3] += 1.0
        if label == 3:
            patch[0] += 1.0
            patch[-1] += 1.0
            patch[1:-1, 0] += 1.0
            patch[1:-1, -1] += 1.0
    return pictures, labels


@kind
def cnn_pictures(folder: Path) -> tuple[float, float]:
    """Train a convolutional network with batch norms on pictures of four shapes; SGD with momentum."""
    pictures, labels = shapes(2_600)
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4)),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9, weight_decay=5e-4)
    batches = rows((pictures[:2_200], labels[:2_200]), 32)
    held_out = (pictures[2_200:], labels[2_200:])
    return fit(folder, model, optimizer, batches, lambda each: F.cross_entropy(model(each[0]), each[1]), held_out=held_out)


@kind
def lstm_text(folder: Path) -> tuple[float, float]:
    """Train an LSTM of two layers on characters; Adam, clipping at 1."""
    text = characters("docs/*.md")
    model = CharacterLstm()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    batches, held_out = windows(text[:-20_000], 24, 48), window(text[-20_000:], 64, 48)
    return fit(
        folder, model, optimizer, batches, next_token_loss(model), held_out=held_out, clip=1.0, vocabulary=96, warmup_steps=0
    )


@kind
def small_gpt(folder: Path) -> tuple[float, float]:
    """Train a GPT of three blocks on characters; AdamW, warm-up, cosine, clipping at 1."""
    text, model, steps = characters("docs/*.md"), SmallGpt(), 300
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 30) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
    )
    batches, held_out = windows(text[:-20_000], 16, 64), window(text[-20_000:], 64, 64)
    return fit(
        folder,
        model,
        optimizer,
        batches,
        next_token_loss(model),
        steps=steps,
        held_out=held_out,
        clip=1.0,
        schedule=schedule,
        vocabulary=96,
        warmup_steps=30,
    )


@kind
def vae(folder: Path) -> tuple[float, float]:
    """Train a variational autoencoder on pictures: squared error and divergence, summed over a picture; Adam."""
    pictures = shapes(2_400)[0]
    model = Vae()

    def loss_of(batch: Batch) -> Tensor:
        decoded, mean, log_variance = model(batch[0])
        divergence = -0.5 * (1 + log_variance - mean**2 - log_variance.exp()).sum(dim=1).mean()
        return F.mse_loss(decoded, batch[1], reduction="sum") / len(batch[0]) + divergence

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = rows((pictures[:2_000], pictures[:2_000]), 64)
    return fit(folder, model, optimizer, batches, loss_of, steps=250, held_out=(pictures[2_000:], pictures[2_000:]))


@kind
def gan(folder: Path) -> tuple[float, float]:
    """Train a GAN on points of a ring, both networks in one recorder, each with its own Adam; the loss is the generator's."""
    generator = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    judge = nn.Sequential(nn.Linear(2, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))
    model = nn.ModuleDict({"generator": generator, "discriminator": judge})
    of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
    of_judge = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.999))
    true, false, losses = torch.ones(64, 1), torch.zeros(64, 1), []
    recorder = Recorder(model, folder, optimizer=[of_generator, of_judge], planned_steps=300)
    for _ in range(300):
        angle = 2 * math.pi * torch.rand(64)
        real = torch.stack([angle.cos(), angle.sin()], dim=1) + 0.05 * torch.randn(64, 2)
        made = generator(torch.randn(64, 8))
        of_judge.zero_grad()
        told = F.binary_cross_entropy_with_logits
        (told(judge(real), true) + told(judge(made.detach()), false)).backward()
        of_judge.step()
        of_generator.zero_grad()
        loss = told(judge(made), true)
        loss.backward()
        recorder.after_backward()
        of_generator.step()
        recorder.step(loss, batch=(real,))
        losses.append(loss.item())
    recorder.close()
    return ends(losses)


@kind
def gru_forecast(folder: Path) -> tuple[float, float]:
    """Train a GRU that forecasts a noisy series with two periods; Adam, squared error."""
    time_ = torch.arange(2_600.0)
    series = torch.sin(time_ / 4) + 0.5 * torch.sin(time_ / 11 + torch.rand(1) * 6) + 0.1 * torch.randn(2_600)
    cut = series.unfold(0, 33, 1)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    inputs, targets = cut[:, :-1, None], cut[:, -1:]
    batches = rows((inputs[:2_000], targets[:2_000]), 64)
    held_out = (inputs[2_100:], targets[2_100:])
    return fit(folder, model, optimizer, batches, lambda each: F.mse_loss(model(each[0]), each[1]), held_out=held_out)


@kind
def graph_network(folder: Path) -> tuple[float, float]:
    """Train a graph network on its whole graph at each step, scored on part of the nodes; Adam, weight decay."""
    labels = torch.randint(0, 4, (400,))
    nodes = torch.randn(4, 32)[labels] * 0.5 + torch.randn(400, 32)
    near = torch.where(labels[:, None] == labels, 0.05, 0.004)
    edges = (torch.rand(400, 400) < near).float()
    edges = ((edges + edges.T) > 0).float() + torch.eye(400)
    scale = edges.sum(dim=1).rsqrt()
    model = GraphNetwork(scale[:, None] * edges * scale)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    recorder, losses = Recorder(model, folder, optimizer=optimizer, planned_steps=200), []
    for step in range(1, 201):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(nodes)[:200], labels[:200])
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss, batch=(nodes, labels))
        losses.append(loss.item())
        if step % 20 == 0:
            model.eval()
            with torch.no_grad():
                recorder.log_after(val_loss=F.cross_entropy(model(nodes)[200:], labels[200:]).item())
            model.train()
    recorder.close()
    return ends(losses)


@kind
def policy_gradient(folder: Path) -> tuple[float, float]:
    """Train REINFORCE with a baseline on a walk to a goal; returns its rewards, because the loss of a policy has no level."""
    policy = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    moves = torch.tensor([[0.2, 0.0], [-0.2, 0.0], [0.0, 0.2], [0.0, -0.2]])
    recorder, rewards = Recorder(policy, folder, optimizer=optimizer, planned_steps=250), []
    for _ in range(250):
        place, seen, taken, gained = 2 * torch.rand(64, 2) - 1, [], [], []
        for _ in range(8):
            action = torch.distributions.Categorical(logits=policy(place)).sample()
            seen.append(place)
            taken.append(action)
            place = place + moves[action]
            gained.append(-place.norm(dim=1))
        ahead = torch.stack(gained).flip(0).cumsum(0).flip(0)
        advantage = (ahead - ahead.mean(dim=1, keepdim=True)) / ahead.std(dim=1, keepdim=True)
        observations, actions = torch.cat(seen), torch.cat(taken)
        chosen = torch.distributions.Categorical(logits=policy(observations)).log_prob(actions)
        loss = -(chosen * advantage.flatten()).mean()
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss, batch=(observations, actions))
        rewards.append(torch.stack(gained).mean().item())
    recorder.close()
    return ends(rewards)


@kind
def low_rank_gpt(folder: Path) -> tuple[float, float]:
    """Train a GPT on pages, then fine-tune it by low-rank adapters on code; AdamW on the adapters alone."""
    model, pages = SmallGpt(), characters("docs/*.md")
    before = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for batch in (window(pages, 16, 64) for _ in range(400)):
        before.zero_grad()
        next_token_loss(model)(batch).backward()
        before.step()
    model.requires_grad_(requires_grad=False)
    for block in model.blocks:
        block.qkv, block.out = LowRank(block.qkv), LowRank(block.out)
    code = characters("ckaudit/audit/*.py")
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=2e-3)
    batches, held_out = windows(code[:-10_000], 16, 64), window(code[-10_000:], 64, 64)
    return fit(
        folder, model, optimizer, batches, next_token_loss(model), held_out=held_out, clip=1.0, vocabulary=96, warmup_steps=0
    )


def found(report: Report) -> list[str]:
    """Return the findings of sev2 or worse as text."""
    return [f"{each.severity} {each.code} {each.message}" for each in report.findings if each.severity != "note"]


def table(names: list[str], seeds: list[int], folder: Path) -> tuple[str, int]:
    """Train and audit; return the table and how many trainings have a finding of sev2 or worse."""
    lines, flagged = [], 0
    for name in names:
        about, cells, notes, losses = (KINDS[name].__doc__ or "").strip().rstrip("."), [], set[str](), []
        for seed in seeds:
            torch.manual_seed(seed)
            begun = time.perf_counter()
            losses.append(KINDS[name](folder / f"{name}.{seed}"))
            report = triage(folder / f"{name}.{seed}")
            grave = found(report)
            flagged += bool(grave)
            notes |= {each.code for each in report.findings if each.severity == "note"}
            cells.append(", ".join(sorted({each.split()[0] + " " + each.split()[1] for each in grave})) or "-")
            print(f"{name} seed {seed}, {time.perf_counter() - begun:.0f} s: {losses[-1]}: {report.verdict}", flush=True)
            print("".join(f"    {each}\n" for each in grave), end="", flush=True)
        course = f"{losses[0][0]:.3g} to {losses[0][1]:.3g}"
        lines.append(f"| {name} | {about} | {course} | {' | '.join(cells)} | {', '.join(sorted(notes))} |")
    head = f"| kind | what it is | loss of seed {seeds[0]} | {' | '.join(f'seed {seed}' for seed in seeds)} | notes |"
    told = f"{flagged} of {len(names) * len(seeds)} healthy trainings of {len(names)} kinds have a finding of sev2 or worse."
    return "\n".join([told, "", head, "|---" * (len(seeds) + 4) + "|", *lines]), flagged


def main() -> int:
    """Train, audit, print the table, and write it if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(KINDS), help="kinds, separated by commas")
    parser.add_argument("--seeds", default="0,1,2", help="seeds, separated by commas")
    parser.add_argument("--folder", type=Path, help="where the runs stay; default: a temporary folder")
    parser.add_argument("--write", action="store_true", help=f"put the table into {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with contextlib.ExitStack() as stack:
        folder = given.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ten-kinds-")))
        text, flagged = table(given.only.split(","), [int(each) for each in given.seeds.split(",")], folder)
    print(text)
    if given.write:
        write_table("ten_kinds", text, PAGE)
    return min(flagged, 1)


if __name__ == "__main__":
    sys.exit(main())
