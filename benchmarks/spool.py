"""What a step takes whose recorder writes to an address, against one that writes to a folder.

    python benchmarks/spool.py [--rounds N] [--write]

Short trainings of one model take turns, each with a recorder of its own: to a folder, and to addresses whose server answers,
answers after a second, takes connections and says nothing, or is not there. The server and the proxy that delays are processes
of their own on the same processors. `--write` puts the table into benchmarks/README.md.
"""

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory, mkdtemp
from time import perf_counter, process_time, sleep

import torch
from msgspec import Struct
from torch.optim import AdamW

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from loops import error, middle  # noqa: E402  stands beside this
from models import MINI, loss_of  # noqa: E402
from pairs import machine, write_table  # noqa: E402

from ckaudit.contract.schema.manifest import Cadence  # noqa: E402  after the path is known
from ckaudit.recorder import Recorder  # noqa: E402
from ckaudit.recorder.files import uploader  # noqa: E402
from tests.object_storage import environment, forget_clients, free_port  # noqa: E402

STEPS, WARM_UP, EVERY = 60, 5, 10
DELAY = 1.0  # seconds until the slow server answers
HEADER = "| recorder writes to | step ms | over a folder's | processor, over a folder's | is up at the end |\n" + "|---" * 5 + "|"
PROXY = """
import sys, threading
from tests.object_storage import Fault, Proxy
with Proxy(sys.argv[1], lambda *_: Fault(delay=float(sys.argv[2]))) as proxy:
    print(proxy.endpoint, flush=True)
    threading.Event().wait()
"""


class Training(Struct, frozen=True, kw_only=True):
    """One short training.

    Attributes:
        wall: Seconds of a step, the lowest decile: what else runs on the machine disturbs it least.
        processor: Seconds of processor time a step, of all threads, the mean.
        is_up: Whether everything was at the address at the end.
    """

    wall: float
    processor: float
    is_up: bool


def train(folder: str) -> Training:
    """Train MiniGPT for a while, with a checkpoint every ten steps."""
    torch.manual_seed(0)
    model = MINI.build()
    optimizer = AdamW(model.parameters(), lr=1e-3)
    recorder = Recorder(model, folder, optimizer=optimizer, cadence=(Cadence(until=None, every=EVERY),))
    walls, begin = [], 0.0
    for step in range(1, STEPS + 1):
        if step == WARM_UP + 1:
            begin = process_time()
        start = perf_counter()
        batch = MINI.batch(step)
        loss = loss_of(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        recorder.after_backward()
        optimizer.step()
        recorder.step(loss, batch=batch)
        walls.append(perf_counter() - start)
    spent = process_time() - begin
    up = recorder._session._folder._uploader  # noqa: SLF001
    recorder.close()
    return Training(wall=quantiles(walls[WARM_UP:], n=10)[0], processor=spent / (STEPS - WARM_UP), is_up=up is None or up.is_up)


@contextmanager
def process(command: Sequence[str | Path], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Run a program for the time of the body."""
    running = subprocess.Popen([*map(str, command)], cwd=HERE.parent, text=True, **options)  # type: ignore[call-overload]
    try:
        yield running
    finally:
        running.kill()
        running.wait()


@contextmanager
def endpoints(folder: Path) -> Iterator[dict[str, str]]:
    """Give the endpoint of each server by what it does."""
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


def measure(rounds: int) -> dict[str, list[Training]]:
    """Return the trainings of each way, by rounds."""
    found: dict[str, list[Training]] = {}
    with TemporaryDirectory() as temporary, endpoints(Path(temporary)) as servers:
        os.environ["CKAUDIT_SPOOL"] = f"{temporary}/spools"
        ways = ["a folder", *servers]
        for number in range(rounds):
            for turn in range(len(ways)):
                way = ways[(number + turn) % len(ways)]
                os.environ |= environment(servers.get(way, ""))
                forget_clients()
                folder = f"{temporary}/{number}" if way == "a folder" else f"s3://bucket/{number}-{turn}"
                found.setdefault(way, []).append(train(folder))
    return found


def rows(found: dict[str, list[Training]]) -> Iterator[str]:
    """Yield a row for each way."""
    local = found["a folder"]
    for way, trainings in found.items():
        walls = [each.wall / other.wall for each, other in zip(trainings, local, strict=True)]
        spent = [each.processor / other.processor for each, other in zip(trainings, local, strict=True)]
        up = sum(each.is_up for each in trainings)
        yield (
            f"| {way} | {middle([each.wall for each in trainings]) * 1e3:.1f} | {middle(walls):.3f} ± {error(walls):.3f} "
            f"| {middle(spent):.3f} ± {error(spent):.3f} | {'' if trainings is local else f'{up} of {len(trainings)}'} |"
        )


def main() -> None:
    """Measure, print, and write where asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    uploader.START_PATIENCE, uploader.CLOSE_PATIENCE = 2.0, 3.0  # neither is part of a step
    uploader.PAUSE = 0.5  # ten times as often as in a real run
    train(f"{mkdtemp()}/run")  # what is loaded and settles only once
    found = dict(sorted(measure(wanted.rounds).items(), key=lambda pair: pair[0] != "a folder"))
    title = f"{machine()}, torch {torch.__version__} on one thread; {wanted.rounds} rounds of {STEPS} steps of {MINI.name}."
    table = "\n".join([title, "", HEADER, *rows(found)])
    print(table)
    if wanted.write:
        write_table("spool", table)


if __name__ == "__main__":
    main()
