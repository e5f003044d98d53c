"""How long a step takes if its recorder writes to an address, against one that writes to a folder: step by step, in one process.

    python benchmarks/spool.py [--steps N] [--write]

Two trainings of one model take turns at every step, in changing order and on the same batches. One has a recorder to a folder,
the other a recorder to an address whose server answers, answers after a second, accepts connections and never answers, or does
not exist. The extra time is the difference of two adjacent steps. The server and the delaying proxy are separate processes on
the same processors. `--write` puts the table into benchmarks/README.md.
"""

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep, thread_time
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import AdamW

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from models import MINI, loss_of  # noqa: E402  stands beside this
from pairs import machine, write_table  # noqa: E402

from ckaudit.contract.schema.manifest import Cadence  # noqa: E402  after the path is known
from ckaudit.recorder import Recorder  # noqa: E402
from ckaudit.recorder.files import uploader  # noqa: E402
from tests.object_storage import environment, forget_clients, free_port  # noqa: E402

WARM_UP, EVERY = 10, 10
DELAY = 1.0  # seconds until the slow server answers
HEADER = (
    "| recorder writes to | step, ms | more on the clock, ms | more of the training's thread, ms "
    "| the same, of steps with a checkpoint | is up at the end |\n" + "|---" * 6 + "|"
)
PROXY = """
import sys, threading
from tests.object_storage import Fault, Proxy
with Proxy(sys.argv[1], lambda *_: Fault(delay=float(sys.argv[2]))) as proxy:
    print(proxy.endpoint, flush=True)
    threading.Event().wait()
"""


class Took(NamedTuple):
    """Time of one step in ms: wall time, and processor time of its own thread."""

    wall: float
    processor: float


class Training:
    """A model in training, and its recorder."""

    def __init__(self, folder: str) -> None:
        torch.manual_seed(0)
        self.model = MINI.build()
        self.optimizer = AdamW(self.model.parameters(), lr=1e-3)
        cadence = (Cadence(until=None, every=EVERY),)
        self.recorder = Recorder(self.model, folder, optimizer=self.optimizer, cadence=cadence)

    def step(self, batch: tuple[Tensor, Tensor]) -> Took:
        """Train one step."""
        wall, processor = perf_counter(), thread_time()
        loss = loss_of(self.model, *batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.recorder.after_backward()
        self.optimizer.step()
        self.recorder.step(loss, batch=batch)
        return Took((perf_counter() - wall) * 1e3, (thread_time() - processor) * 1e3)

    def close(self) -> bool:
        """End the training, and tell whether everything had been uploaded before it ended."""
        up = self.recorder._session._folder._uploader  # noqa: SLF001
        self.recorder.close()
        return up is None or up.is_up


class Pair(NamedTuple):
    """Steps of two trainings that took turns, one to a folder and one to an address, and whether the latter is uploaded."""

    folder: list[Took]
    address: list[Took]
    is_up: bool


def take_turns(folder: str, address: str, steps: int, *, is_first: bool = False) -> Pair:
    """Train two models side by side; with `is_first` the one to the address is made first. The second is a little faster."""
    made = {place: Training(place) for place in ((address, folder) if is_first else (folder, address))}
    trainings = (made[folder], made[address])
    took: tuple[list[Took], list[Took]] = ([], [])
    for step in range(1, steps + 1):
        batch = MINI.batch(step)
        for which in (0, 1) if step % 2 else (1, 0):
            took[which].append(trainings[which].step(batch))
    return Pair(took[0], took[1], [training.close() for training in trainings][1])


@contextmanager
def process(command: Sequence[str | Path], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program while the body runs."""
    running = subprocess.Popen([*map(str, command)], cwd=HERE.parent, text=True, **options)  # type: ignore[call-overload]
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def endpoints(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the endpoint of each server by its behaviour."""
    port = free_port()
    rclone = [Path(sys.executable).with_name("rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--config", "/dev/null"]
    rclone += ["--auth-key", "ckaudit-tests,no-secret", "--dir-cache-time", "1ms", "--poll-interval", "0", folder]
    (folder / "bucket").mkdir()
    live = f"http://127.0.0.1:{port}"
    slow = [sys.executable, "-c", PROXY, live, str(DELAY)]
    with process(rclone, stderr=subprocess.DEVNULL), process(slow, stdout=subprocess.PIPE) as proxy, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(64)
        assert proxy.stdout is not None
        delayed = proxy.stdout.readline().strip()
        sleep(2)
        yield {
            "an address": live,
            "an address whose server answers after a second": delayed,
            "an address whose server says nothing": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "an address without a server": f"http://127.0.0.1:{free_port()}",
        }


def measure(steps: int) -> dict[str, list[Pair]]:
    """Return the pairs for each server."""
    found: dict[str, list[Pair]] = {}
    with TemporaryDirectory() as temporary, endpoints(Path(temporary)) as servers:
        os.environ["CKAUDIT_SPOOL"] = f"{temporary}/spools"
        take_turns(f"{temporary}/first", f"{temporary}/other", 2 * EVERY)  # a warm-up: loading happens only once
        for number, (way, endpoint) in enumerate(servers.items()):
            os.environ |= environment(endpoint)
            forget_clients()
            found[way] = both_orders(f"{temporary}/{number}", f"s3://bucket/{number}", steps)
        found["another folder"] = both_orders(f"{temporary}/one", f"{temporary}/two", steps)
    return found


def both_orders(folder: str, address: str, steps: int) -> list[Pair]:
    """Train two models side by side, and two others made in the other order, half of the steps each."""
    return [take_turns(f"{folder}-{turn}", f"{address}-{turn}", steps // 2, is_first=bool(turn)) for turn in (0, 1)]


def interval(values: Sequence[float]) -> str:
    """Return the median and its 95 % interval, valid for any distribution (by order statistics).

    >>> interval([float(number) for number in range(101)])
    '50.00 (40.00 to 60.00)'
    """
    ordered, half = sorted(values), min(0.98 * len(values) ** 0.5, (len(values) - 1) / 2)
    low, high = (ordered[round((len(ordered) - 1) / 2 + sign * half)] for sign in (-1, 1))
    return f"{median(ordered):.2f} ({low:.2f} to {high:.2f})"


def rows(found: dict[str, list[Pair]]) -> Iterator[str]:
    """Yield a row for each server."""
    for way, pairs in found.items():
        steps = [(pair, step) for pair in pairs for step in range(WARM_UP, len(pair.folder))]
        more = [Took(*(a - b for a, b in zip(pair.address[step], pair.folder[step], strict=True))) for pair, step in steps]
        due = [each.processor for (_, step), each in zip(steps, more, strict=True) if (step + 1) % EVERY == 0]
        step_ms = median(took.wall for pair in pairs for took in pair.folder)
        wall, processor = interval([each.wall for each in more]), interval([each.processor for each in more])
        is_up = "yes" if all(pair.is_up for pair in pairs) else "no"
        yield f"| {way} | {step_ms:.1f} | {wall} | {processor} | {interval(due)} | {is_up} |"


def main() -> None:
    """Measure, print, and write if asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    uploader.START_PATIENCE, uploader.CLOSE_PATIENCE = 2.0, 3.0  # shorter waits at start and end, which are not part of a step
    uploader.PAUSE = 0.5  # ten times as often as in a real run
    title = f"{machine()}, torch {torch.__version__} on one thread; {wanted.steps} pairs of steps of {MINI.name}."
    table = "\n".join([title, "", HEADER, *rows(measure(wanted.steps))])
    print(table)
    if wanted.write:
        write_table("spool", table)


if __name__ == "__main__":
    main()
