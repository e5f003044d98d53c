"""What other recorders add to a training step, each in its own process, taking turns with a loop that only clips.

    python benchmarks/other_recorders.py [--only NAME] [--steps N] [--write]

A peer that cannot be imported is left out, and the table says why. Each is measured with a full look at every tenth step. Its
cost at its own default, and at every 50th step, is computed from its expensive and its cheap steps. `--write` puts the table into
benchmarks/README.md.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]

from loops import MAX_NORM, Look, Loop, Sample, clipping, middle, take_turns  # noqa: E402  stands beside this
from models import MINI, NANO, SMALL, Shape  # noqa: E402
from pairs import machine, write_table  # noqa: E402
from recorder import DUE, RUN, WARM_UP, start  # noqa: E402

SEEN = 10  # steps between a peer's full looks in this benchmark
SPARSE = 50
HEAD = (
    "| model | what | step that is not looked at, ms more | step looked at, ms more | its default | ms a step, % at its default "
    "| ms a step, % at every 50 |\n" + "|---" * 7 + "|"
)
Starter = Callable[[nn.Module, Optimizer], Look]


class Peer(Struct, frozen=True, kw_only=True):
    """A recorder by other authors.

    Attributes:
        name: Its name in the table.
        start: Starts it in a folder; "default" or "sparse" says how much it looks at steps between.
        default: Its default, in words.
        periods: Steps between its looks at its default, the cheapest first; none if it has no default.
        seen: Steps between its looks as measured here.
        counts_from: Number it gives to the first step.
        timed: Which steps are timed by its calls; the others are timed by the whole step, because it hooks the model.
    """

    name: str
    start: Callable[[Path, Literal["default", "sparse"]], Starter]
    default: str
    periods: Sequence[float]
    seen: Sequence[int] = (SEEN,)
    counts_from: int = 1
    timed: Literal["all", "plain", "none"] = "none"

    def kind(self, step: int, seen: Sequence[int]) -> int:
        """Return the kind of look at a step, counted from 1: the distance between such looks, or 0 for none."""
        number = step - 1 + self.counts_from
        return max((every for every in seen if number % every == 0), default=0)


def clip(model: nn.Module) -> Callable[[], Tensor]:
    """Return a function that clips the gradients of a model."""
    return lambda: clip_grad_norm_(model.parameters(), MAX_NORM)


def ours(*, clips: bool) -> Callable[[Path, str], Starter]:
    """Return a function that starts this project's recorder."""
    return lambda folder, _mode: start(folder / "run", SEEN, clips=clips)


def composer(_folder: Path, _mode: str) -> Starter:
    """Take the four norms of each parameter that Composer's optimizer monitor logs, one number at a time.

    The package needs an older torch, so its arithmetic is reproduced here: norms of the gradient, the first moment, the weight
    and
    the update that AdamW computes from its moments.
    """

    def norms(optimizer: Optimizer, parameter: Tensor) -> list[Tensor]:
        group, state = optimizer.param_groups[0], optimizer.state[parameter]
        count, (first, second) = state["step"].item(), group["betas"]
        root = (state["exp_avg_sq"].sqrt() / (1 - second**count) ** 0.5).add_(group["eps"])
        update = group["lr"] / (1 - first**count) * state["exp_avg"].div(root)
        update.add_(parameter, alpha=-group["weight_decay"])
        return [torch.linalg.vector_norm(each) for each in (parameter.grad, state["exp_avg"], parameter, update)]

    def begin(model: nn.Module, optimizer: Optimizer) -> Look:
        steps = 0

        @torch.no_grad()
        def look(_loss: Tensor, _batch: Any) -> None:
            nonlocal steps
            steps += 1
            if steps % SEEN:
                return
            found = {name: norms(optimizer, parameter) for name, parameter in model.named_parameters()}
            total = sum(values[0] ** 2 for values in found.values()) ** 0.5  # type: ignore[operator]
            _ = {name: [value.item() for value in values] for name, values in found.items()}, float(total)

        return Look(clip=clip(model), after_step=look)

    return begin


def wandb(folder: Path, _mode: str) -> Starter:
    """Watch weights and gradients with Weights & Biases, offline; the loss is logged at every step."""
    import wandb as library

    def begin(model: nn.Module, _optimizer: Optimizer) -> Look:
        run = library.init(mode="offline", dir=folder, project="benchmark", settings=library.Settings(silent=True))
        run.watch(model, log="all", log_freq=SEEN)
        return Look(clip=clip(model), after_step=lambda loss, _batch: run.log({"loss": loss.item()}), close=run.finish)

    return begin


def tensorboard(folder: Path, _mode: str) -> Starter:
    """Write histograms of all weights and gradients with TensorBoard."""
    from torch.utils.tensorboard import SummaryWriter

    def begin(model: nn.Module, _optimizer: Optimizer) -> Look:
        writer, steps = SummaryWriter(str(folder)), 0

        def look(_loss: Tensor) -> None:
            nonlocal steps
            steps += 1
            for name, parameter in model.named_parameters() if steps % SEEN == 0 else ():
                writer.add_histogram(name, parameter, steps)
                writer.add_histogram(f"{name}.grad", parameter.grad, steps)

        return Look(before_clip=look, clip=clip(model), close=writer.close)

    return begin


def torchmortem(_folder: Path, mode: str) -> Starter:
    """Attach torchmortem; by default its cheap collectors run at every step."""
    from torchmortem import Autopsy, SamplingConfig

    every = 1 if mode == "default" else SEEN

    def begin(model: nn.Module, optimizer: Optimizer) -> Look:
        sampling = SamplingConfig(default_interval=every, expensive_interval=SEEN)
        autopsy = Autopsy(model, optimizer=optimizer, sampling=sampling)
        autopsy.attach()
        return Look(clip=clip(model), after_step=lambda loss, _batch: autopsy.step(loss=loss.item()))

    return begin


def trainscope(folder: Path, mode: str) -> Starter:
    """Attach trainscope; by default it takes norms at every step, outputs at every 5th and histograms at every 50th."""
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig

    every, outputs = (1, 5) if mode == "default" else (SEEN, SEEN)

    def begin(model: nn.Module, optimizer: Optimizer) -> Look:
        config = TrainScopeConfig(
            run_dir=str(folder), trace_every_n_steps=every, activation_metrics_every_n_steps=outputs, histogram_every_n_steps=SEEN
        )
        scope = TrainScope(model, optimizer, config=config).attach()
        return Look(before_clip=lambda loss: scope.step(loss.item()), clip=clip(model), close=scope.detach)

    return begin


CADENCE = f"{DUE} in {RUN:,} steps"
PEERS = (
    Peer(name="ckaudit, clipping beside it", start=ours(clips=False), default=CADENCE, periods=[RUN / DUE], timed="plain"),
    Peer(name="ckaudit, clipping itself", start=ours(clips=True), default=CADENCE, periods=[RUN / DUE], timed="plain"),
    Peer(name="Composer's OptimizerMonitor, its arithmetic", start=composer, default="every 10", periods=[10], timed="all"),
    Peer(name="wandb.watch, all, offline", start=wandb, default="every 1,000", periods=[1_000]),
    Peer(name="TensorBoard, histograms", start=tensorboard, default="none", periods=[], timed="all"),
    Peer(name="torchmortem", start=torchmortem, default="1, 50", periods=[1, 50], seen=(1, SEEN), counts_from=0),
    Peer(name="trainscope", start=trainscope, default="1, 5, 50", periods=[1, 5, 50], seen=(1, 5, SEEN), counts_from=0),
)
MODELS = {"MiniGPT": MINI, "GPT, 4 layers": NANO, "GPT, 12 layers": SMALL}
FEWER = {"GPT, 12 layers": 6}  # one step where the other models have six, because its steps are long


def added(peer: Peer, shape: Shape, mode: Literal["default", "sparse"]) -> tuple[dict[int, float], float]:
    """Return by how many ms each kind of step exceeds the loop that only clips, and how long that loop's steps are."""
    seen = peer.seen if mode == "default" else (SEEN,)
    with TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
        loops = [Loop(shape, clipping), Loop(shape, peer.start(Path(temporary), mode))]
        bare, samples = take_turns(shape, loops)
        loops[1].close()
    more: dict[int, list[float]] = {}
    for step, (sample, other) in enumerate(zip(samples, bare, strict=True), 1):
        if step > WARM_UP:
            kind = peer.kind(step, seen)
            more.setdefault(kind, []).append(_longer(peer, sample, other, due=kind == max(seen)))
    return {kind: middle(values) for kind, values in more.items()}, middle([sample.whole - sample.clip for sample in bare])


def _longer(peer: Peer, sample: Sample, other: Sample, *, due: bool) -> float:
    if peer.timed == "all" or (peer.timed == "plain" and not due):
        return sample.calls + sample.clip - other.clip
    return sample.whole - other.whole


def at(more: Mapping[int, float], seen: Sequence[int], periods: Sequence[float]) -> float:
    """Return the mean ms added to a step if the looks measured at the distances `seen` occur at the distances `periods`.

    Each period is a multiple of the one before, whose look it replaces.
    """
    rates = [1.0, *(1 / period for period in periods), 0.0]
    shares = [rate - rarer for rate, rarer in pairwise(rates)]
    return sum(share * more.get(kind, 0.0) for share, kind in zip(shares, (0, *seen), strict=True))


def row(model: str, peer: Peer) -> str:
    """Measure one peer and return its row."""
    dense, step = added(peer, MODELS[model], "default")
    sparse = dense if len(peer.seen) == 1 else added(peer, MODELS[model], "sparse")[0]
    default = _share(at(dense, peer.seen, peer.periods), step) if peer.periods else "-"
    between, looked = sparse.get(0, 0.0), sparse[SEEN]
    return (
        f"| {model}, {step:.1f} ms | {peer.name} | {between:.2f} | {looked:.2f} | {peer.default} | {default} "
        f"| {_share(at(sparse, (SEEN,), (SPARSE,)), step)} |"
    )


def _share(ms: float, step: float) -> str:
    return f"{ms:.3f}, {100 * ms / step:.2f} %"


def in_a_process(model: str, peer: Peer, steps: int) -> str:
    """Measure one peer in a fresh process; return the reason if that fails."""
    command = [sys.executable, __file__, "--one", json.dumps([model, peer.name]), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"| {model} | {peer.name} | left out: {reason} |" + " |" * 4
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="measure only peers whose name holds this text")
    parser.add_argument("--steps", type=int, default=204, help="steps watched")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    for name, shape in MODELS.items():
        MODELS[name] = replace(shape, steps=wanted.steps // FEWER.get(name, 1), every=SEEN)
    if wanted.one:
        model, name = json.loads(wanted.one)
        print(row(model, next(peer for peer in PEERS if peer.name == name)))
        return
    rows = [in_a_process(model, peer, wanted.steps) for model in MODELS for peer in PEERS if wanted.only in peer.name]
    table = "\n".join([f"{machine()}, torch {torch.__version__} on one thread; processor time.", "", HEAD, *rows])
    print(table)
    if wanted.write:
        write_table("other_recorders", table)


if __name__ == "__main__":
    main()
