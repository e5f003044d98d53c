"""What recording costs a training, by processor time taken inside the steps.

    python benchmarks/recorder.py [--only NAME] [--qwen] [--write]

Loops of one model take turns in one process and on one thread: one that only clips, one with the recorder beside
`clip_grad_norm_`, one whose recorder clips, and the last two with the floor program instead of the recorder. `--qwen` adds
a model shaped like Qwen3-0.6B, which takes 15 GB of memory and ten minutes. `--write` puts the tables into
benchmarks/README.md.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from msgspec import Struct
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "floors")]

from loops import MAX_NORM, Look, Loop, Sample, clipping, error, middle, spread, take_turns  # noqa: E402  stands beside this
from models import QWEN_LAYERS, SHAPES, Shape, parameters, qwen_shape  # noqa: E402
from pairs import machine, write_table  # noqa: E402
from recorder_floor import beside, taking_over  # noqa: E402

from ckaudit.contract.schema.manifest import Cadence  # noqa: E402  after the path is known
from ckaudit.recorder import Recorder  # noqa: E402

WARM_UP = 4  # steps that do not count: the very first, and those until kernels and memory settle
RUN = 2_000  # steps over which the cost of a run is spread
DUE = 33  # checkpoints of the default cadence in a run, besides the first and the last

STEPS = (
    "| model | parameters | bare step ms, noise | clipping us | recorder us | over clipping (aim 1.0) | floor "
    "| recorder that clips us | over clipping alone (aim 1.05) | floor |\n" + "|---" * 10 + "|"
)
RUNS = (
    "| model | clipping | plain step by calls | plain step whole, us | due step, ms more | a due step's % of a step "
    "| start, end ms | amortised % (aim) | total % (aim) |\n" + "|---" * 9 + "|"
)
QWENS = "| model | bare step ms | clipping ms | recorder ms | start ms | due step, ms more |\n" + "|---" * 6 + "|"


class Measured(Struct, frozen=True, kw_only=True):
    """The samples of one model's loops, without the first steps.

    Attributes:
        shape: The model.
        parameters: Number of trained parameters.
        bare: Steps of the loop that only clips.
        foreign: Steps of the loop with the recorder beside `clip_grad_norm_`.
        taken: Steps of the loop whose recorder clips.
        floor: Steps of the loop with the floor program beside `clip_grad_norm_`.
        floor_taken: Steps of the loop in which the floor program clips.
        ends: Time of start and end of the two recorders in ms.
    """

    shape: Shape
    parameters: int
    bare: Sequence[Sample]
    foreign: Sequence[Sample]
    taken: Sequence[Sample]
    floor: Sequence[Sample]
    floor_taken: Sequence[Sample]
    ends: Sequence[tuple[float, float]]

    def is_due(self, index: int) -> bool:
        """Return whether the sample of this index is a checkpoint step."""
        return (index + WARM_UP + 1) % self.shape.every == 0

    def plain(self, samples: Sequence[Sample]) -> list[Sample]:
        """Keep the samples of steps without a checkpoint."""
        return [sample for index, sample in enumerate(samples) if not self.is_due(index)]

    @property
    def bare_ms(self) -> list[float]:
        """Time of the plain steps without clipping, in ms."""
        return [sample.whole - sample.clip for sample in self.plain(self.bare)]

    def plain_extra(self, samples: Sequence[Sample]) -> str:
        """Return as text by how many us a whole plain step exceeds that of the loop that only clips."""
        more = [sample.whole - other.whole for sample, other in zip(self.plain(samples), self.plain(self.bare), strict=True)]
        return f"{middle(more) * 1e3:+.0f} ± {error(more) * 1e3:.0f}"

    def due_extra(self, samples: Sequence[Sample]) -> tuple[float, float]:
        """Return by how many ms a checkpoint step exceeds a plain one, against the clipping loop's same steps, and its error."""
        more = [sample.whole - other.whole for sample, other in zip(samples, self.bare, strict=True)]
        due = [value for index, value in enumerate(more) if self.is_due(index)]
        plain = [value for index, value in enumerate(more) if not self.is_due(index)]
        return middle(due) - middle(plain), (error(due) ** 2 + error(plain) ** 2) ** 0.5


def start(folder: Path, every: int, *, clips: bool, length: int = 64) -> Callable[[nn.Module, Optimizer], Look]:
    """Return a function that starts a recorder in `folder`, called where its documentation says; rows have `length` tokens."""

    def begin(model: nn.Module, optimizer: Optimizer) -> Look:
        cadence = (Cadence(until=None, every=every),)
        recorder = Recorder(model, folder, optimizer=optimizer, cadence=cadence, clip_norm=MAX_NORM, sequence_length=length)
        return Look(
            before_clip=lambda _loss: None if clips else recorder.after_backward(),
            clip=lambda: recorder.clip_grad_norm_(MAX_NORM) if clips else clip_grad_norm_(model.parameters(), MAX_NORM),
            after_step=lambda loss, batch: recorder.step(loss, batch=batch),
            close=recorder.close,
        )

    return begin


def measure(shape: Shape) -> Measured:
    """Train the loops of one model."""
    with TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in ("foreign", "taken")]
        loops = [
            Loop(shape, clipping),
            *(Loop(shape, start(folder, shape.every, clips=clips)) for folder, clips in zip(folders, (False, True), strict=True)),
            Loop(shape, beside),
            Loop(shape, taking_over),
        ]
        samples = [turn[WARM_UP:] for turn in take_turns(shape, loops)]
        ends = [(loop.start_ms, loop.close()) for loop in loops[1:]]
        for folder in folders:
            check(folder, shape.steps // shape.every + 1 + bool(shape.steps % shape.every))
    ways = dict(zip(("bare", "foreign", "taken", "floor", "floor_taken"), samples, strict=True))
    return Measured(shape=shape, parameters=parameters(loops[0].model), ends=ends[:2], **ways)


def check(folder: Path, expected: int) -> None:
    """Stop if a recorder did not write exactly the expected checkpoints."""
    found = len([*folder.glob("analysis_checkpoint_*")])
    if found != expected:
        raise SystemExit(f"{folder.name} has {found} checkpoints, not {expected}")


def ratio(parts: Sequence[float], wholes: Sequence[float]) -> str:
    """Return the median of parts over wholes, step by step, with its standard error."""
    ratios = [part / whole for part, whole in zip(parts, wholes, strict=True)]
    return f"{middle(ratios):.2f} ± {error(ratios):.2f}"


def steps_row(found: Measured) -> str:
    """Return the row on the cost of plain steps, relative to clipping."""
    ways = (found.bare, found.foreign, found.taken, found.floor, found.floor_taken)
    bare, foreign, taken, floor, floor_taken = (found.plain(samples) for samples in ways)
    alone, clips = [sample.clip for sample in bare], [sample.clip for sample in foreign]
    calls, together, least, least_together = (
        [sample.calls + with_clip * sample.clip for sample in samples]
        for samples, with_clip in ((foreign, False), (taken, True), (floor, False), (floor_taken, True))
    )
    return (
        f"| {found.shape.name} | {found.parameters:,} | {middle(found.bare_ms):.2f}, {spread(found.bare_ms):.1f} % "
        f"| {middle(clips) * 1e3:.0f} in turn, {middle(alone) * 1e3:.0f} alone | {middle(calls) * 1e3:.0f} "
        f"| {ratio(calls, clips)} | {ratio(least, [sample.clip for sample in floor])} "
        f"| {middle(together) * 1e3:.0f} | {ratio(together, alone)} | {ratio(least_together, alone)} |"
    )


def runs_rows(found: Measured) -> Iterator[str]:
    """Yield the total cost of a run, for each way to clip."""
    step = middle(found.bare_ms)
    alone = middle([sample.clip for sample in found.plain(found.bare)])
    amortised_aim = 0.8 if found.parameters < 1_000_000 else 0.4
    for way, samples, (start_ms, end_ms) in zip(("foreign", "taken over"), (found.foreign, found.taken), found.ends, strict=True):
        plain = found.plain(samples)
        calls = middle([sample.calls + sample.clip for sample in plain]) - alone
        extra, uncertain = found.due_extra(samples)
        amortised = 100 * (DUE * extra + start_ms + end_ms) / (RUN * step)
        aim = (3.0 if found.parameters < 500_000 else 2.5) if way == "foreign" else 1.5
        yield (
            f"| {found.shape.name} | {way} | {calls * 1e3:+.0f} us, {100 * calls / step:.2f} % | {found.plain_extra(samples)} "
            f"| {extra:.2f} ± {uncertain:.2f} | {100 * extra / step:.0f} | {start_ms:.0f}, {end_ms:.0f} "
            f"| {amortised:.2f} ({amortised_aim}) "
            f"| {100 * calls / step + amortised:.2f} ({aim}) |"
        )


def qwen_rows() -> Iterator[str]:
    """Yield the rows for a part of Qwen3-0.6B and for the whole."""
    for layers in (6, QWEN_LAYERS):
        yield _qwen_row(f"{layers} layers", qwen_numbers(qwen_shape(layers)))


def _qwen_row(title: str, numbers: Sequence[float]) -> str:
    cells = " | ".join(f"{value:,.0f}" for value in numbers)
    return f"| {title} | {cells} ({100 * numbers[-1] / numbers[0]:.0f} % of the bare step) |"


def qwen_numbers(shape: Shape) -> list[float]:
    """Return bare step, clipping, recorder, start and extra of a checkpoint step, in ms, of a loop beside `clip_grad_norm_`."""
    with TemporaryDirectory() as temporary:
        loop = Loop(shape, start(Path(temporary) / "run", shape.every, clips=False))
        (samples,) = take_turns(shape, [loop])
        loop.close()
    kept = [*enumerate(samples, 1)][WARM_UP // 2 :]
    plain = [sample for step, sample in kept if step % shape.every]
    due = [sample.whole for step, sample in kept if step % shape.every == 0]
    bare = middle([sample.whole - sample.clip - sample.calls for sample in plain])
    return [
        bare,
        middle([sample.clip for sample in plain]),
        middle([sample.calls for sample in plain]),
        loop.start_ms,
        middle(due) - middle([sample.whole for sample in plain]),
    ]


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="measure only models whose name holds this text")
    parser.add_argument("--qwen", action="store_true", help="measure a model shaped like Qwen3-0.6B as well")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    found = [measure(shape) for shape in SHAPES if wanted.only in shape.name]
    lines = [f"{machine()}, torch {torch.__version__} on one thread; processor time, medians of steps.", ""]
    lines += [STEPS, *(steps_row(each) for each in found), "", RUNS, *(row for each in found for row in runs_rows(each))]
    if wanted.qwen:
        lines += ["", QWENS, *qwen_rows()]
    table = "\n".join(lines)
    print(table)
    if wanted.write:
        write_table("recorder", table)


if __name__ == "__main__":
    main()
