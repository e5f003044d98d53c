"""What recording costs a training on an accelerator, by wall time.

    python benchmarks/recorder_gpu.py [--only NAME] [--write]

On an accelerator the loop only queues work. So the script measures how much longer a stretch of steps takes, from one wait for
the device to the next, and how often the recorder makes the loop wait in between. Three loops of one model take turns, stretch by
stretch: one that clips, one with the recorder beside `clip_grad_norm_`, one whose recorder clips. `--write` puts the table into
benchmarks/README.md.
"""

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from loops import Look, clipping, middle, spread  # noqa: E402  stands beside this
from models import QWEN_LAYERS, Shape, loss_of, parameters, qwen  # noqa: E402
from pairs import machine, write_table  # noqa: E402
from recorder import DUE, RUN, start  # noqa: E402  the benchmark beside this

STRETCH = 25  # steps: one of them has vital signs
EVERY = 4  # stretches: one of them holds a checkpoint
ROUNDS = 6  # rounds of stretches, each with one checkpoint, after a first round that does not count

HEAD = (
    "| model | parameters | ms a step, spread | recorder | steps without a checkpoint, % more | one with a checkpoint, ms more "
    "| start, end ms | a run of 2,000 steps, % more | waits of a plain step, vital signs, a checkpoint |\n" + "|---" * 9 + "|"
)


def gpt2(width: int, layers: int, heads: int) -> nn.Module:
    """Return a GPT-2 of this size with random weights, without dropout."""
    from transformers import GPT2Config, GPT2LMHeadModel

    none = {"attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "use_cache": False}
    return GPT2LMHeadModel(GPT2Config(n_embd=width, n_layer=layers, n_head=heads, **none))


def shape(name: str, build: Callable[[], nn.Module], vocabulary: int, rows: int, length: int) -> Shape:
    """Return a model and its batch, with the default number of measured steps."""
    every = STRETCH * EVERY
    steps = every * (ROUNDS + 1)
    return Shape(name=name, build=build, vocabulary=vocabulary, rows=rows, length=length, steps=steps, every=every)


SHAPES = (
    shape("GPT-2, 4 layers of 256", lambda: gpt2(256, 4, 4), 50_257, 8, 256),
    shape("GPT-2, 12 layers of 768", lambda: gpt2(768, 12, 12), 50_257, 16, 1_024),
    shape("Qwen3-0.6B", lambda: qwen(QWEN_LAYERS), 151_936, 4, 1_024),
)


class DeviceLoop:
    """A model in training on the device in bfloat16 autocast, and its recorder."""

    def __init__(self, shape: Shape, device: torch.device, begin: Callable[[nn.Module, Optimizer], Look]) -> None:
        torch.manual_seed(0)
        self.model = shape.build().to(device)
        self.optimizer = AdamW(self.model.parameters(), lr=1e-4, fused=device.type == "cuda")
        self.device, self.step = device, 0
        before = perf_counter()
        self.look = begin(self.model, self.optimizer)
        synchronize(device)
        self.start_ms = (perf_counter() - before) * 1e3

    def train_step(self, batch: tuple[Tensor, Tensor]) -> None:
        """Train one step without waiting for the device."""
        self.step += 1
        with torch.autocast(self.device.type, torch.bfloat16):
            loss = loss_of(self.model, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.look.before_clip(loss)
        self.look.clip()
        self.optimizer.step()
        self.look.after_step(loss.detach(), batch)

    def time_stretch(self, batches: Sequence[tuple[Tensor, Tensor]], steps: int) -> float:
        """Train `steps` steps, and return their wall time in ms, including the work left on the device."""
        synchronize(self.device)
        before = perf_counter()
        for _ in range(steps):
            self.train_step(batches[self.step % len(batches)])
        synchronize(self.device)
        return (perf_counter() - before) * 1e3

    def count_waits(self, batch: tuple[Tensor, Tensor]) -> int:
        """Train one step, and count how often torch makes the program wait for the device."""
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            self.train_step(batch)
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchronizing CUDA operation" in str(warning.message) for warning in seen)


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def rows(shape: Shape, device: torch.device, rounds: int) -> Iterator[str]:
    """Measure one model, and yield its rows of the table."""
    batches = [(inputs.to(device), targets.to(device)) for inputs, targets in map(shape.batch, range(4))]
    with TemporaryDirectory() as temporary:
        ways = {
            "none": clipping,
            "beside clip_grad_norm_": start(Path(temporary) / "beside", shape.every, clips=False, length=shape.length),
            "clips itself": start(Path(temporary) / "clips", shape.every, clips=True, length=shape.length),
        }
        loops = {name: DeviceLoop(shape, device, way) for name, way in ways.items()}
        times = times_in_turn(loops, batches, rounds)
        bare_waits = loops["none"].count_waits(batches[0]) if device.type == "cuda" else 0
        waits = waits_by_kind(loops["clips itself"], batches) if device.type == "cuda" else "-"
        bare = times["none"]
        title = f"| {shape.name} | {parameters(loops['none'].model):,} | {middle(bare) / STRETCH:.2f}, {spread(bare):.1f} % |"
        for name in [*ways][1:]:
            yield f"{title} {name} | {costs(loops[name], times[name], bare)} | {waits}; without {bare_waits} |"


def times_in_turn(loops: dict[str, DeviceLoop], batches: Sequence[tuple[Tensor, Tensor]], rounds: int) -> dict[str, list[float]]:
    """Return the times of every loop's stretches in ms, measured in changing order; the first round is discarded."""
    times: dict[str, list[float]] = {name: [] for name in loops}
    for number in range(EVERY * (rounds + 1)):
        for turn in range(len(loops)):
            name = [*loops][(number + turn) % len(loops)]
            times[name].append(loops[name].time_stretch(batches, STRETCH))
    return {name: each[EVERY:] for name, each in times.items()}


def costs(loop: DeviceLoop, times: Sequence[float], bare: Sequence[float]) -> str:
    """Close a recorder, and return its cost for plain steps, checkpoints, start and end, and a whole run."""
    begin = perf_counter()
    loop.look.close()
    end_ms = (perf_counter() - begin) * 1e3
    a_step = middle(bare) / STRETCH
    more = [one - other for one, other in zip(times, bare, strict=True)]
    is_due = [number % EVERY == EVERY - 1 for number in range(len(more))]
    plain = middle([extra for extra, due in zip(more, is_due, strict=True) if not due])
    due = middle([extra for extra, due in zip(more, is_due, strict=True) if due]) - plain
    share = plain / (a_step * STRETCH)
    whole = share + (DUE * due + loop.start_ms + end_ms) / (RUN * a_step)
    return f"{100 * share:+.2f} | {due:.1f} | {loop.start_ms:.0f}, {end_ms:.0f} | {100 * whole:.2f}"


def waits_by_kind(loop: DeviceLoop, batches: Sequence[tuple[Tensor, Tensor]]) -> str:
    """Return how often a plain step, one with vital signs and one with a checkpoint wait for the device."""
    found: dict[str, int] = {}
    for _ in range(STRETCH * EVERY):
        step = loop.step + 1
        kind = "checkpoint" if step % (STRETCH * EVERY) == 0 else "vital" if step % STRETCH == 0 else "plain"
        if kind != "plain" or step % STRETCH in (7, 8):
            found[kind] = loop.count_waits(batches[0])
        else:
            loop.train_step(batches[0])
    return ", ".join(str(found[kind]) for kind in ("plain", "vital", "checkpoint"))


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="measure only models whose name holds this text")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="checkpoints measured of each loop")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "no accelerator: the numbers mean nothing"
    lines = [f"{machine()}, {name}, torch {torch.__version__}; wall time, medians of stretches of {STRETCH} steps.", "", HEAD]
    print("\n".join(lines), flush=True)
    for shape in SHAPES:
        if wanted.only in shape.name:
            for row in rows(shape, device, wanted.rounds):
                print(row, flush=True)
                lines.append(row)
            if device.type == "cuda":
                torch.cuda.empty_cache()
    if wanted.write:
        write_table("recorder_gpu", "\n".join(lines))


if __name__ == "__main__":
    main()
