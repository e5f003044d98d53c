"""Reads a run beside a recorder that writes it, starts again and goes back: `python -m tests.faults.readers --reads 10000`."""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep

import msgspec
import numpy as np

import ckaudit
from ckaudit.contract.check import check_checkpoint
from ckaudit.contract.io.files import CHECKPOINT_NAME, BrokenFile, read_bytes
from ckaudit.contract.schema.manifest import Cadence, Manifest
from ckaudit.recorder import Writer
from tests.faults.trials import TOLD, WEIGHTS

VALIDATED, JUDGED = 20, 100  # every 20th read is `ckaudit validate`, every 100th `ckaudit triage`
STEPS, LONGEST = 40, 200
"""Steps of one start, and of the whole run before it begins at 0 again."""


def write_for_ever(folder: Path, seed: int) -> None:
    """Record a run in starts that go on, or go back a few steps or to 0, until the process is ended."""
    chance, end = random.Random(seed), 0
    while True:
        for path in folder.glob("*.session*") if end > LONGEST else ():
            path.unlink()  # or there would be ever more to read
        start = 0 if end > LONGEST else max(0, end - chance.choice([0, 0, 7]))
        end = start + STEPS
        cadence = [Cadence(until=None, every=chance.choice([1, 5]))]
        with Writer(folder, start_step=start, cadence=cadence, suffix=chance.choice([".json", ".json.zst"])) as writer:
            for step in range(start + 1, end + 1):
                writer.step(step, loss=1 / step, learning_rate=0.1)
                if writer.is_due(step):
                    moved = {name: array * (1 + 0.001 * step) for name, array in WEIGHTS.items()}
                    writer.checkpoint(step, weights=moved, gradients=WEIGHTS, previous=WEIGHTS)
                sleep(chance.choice([0, 0, 0.001]))


def read(folder: Path, number: int, chance: random.Random) -> Iterator[str]:
    """Read something of a run, and yield what is torn."""
    if number % JUDGED == 0:
        for check in ckaudit.triage(folder).to_dict().get("checks", []):
            if check["outcome"] == "error":
                yield f"triage: {check}"
    elif number % VALIDATED == 0:
        for finding in ckaudit.validate(folder).findings:
            if finding.code not in TOLD:
                yield f"validate: {finding.code} {finding.message}"
    elif number % 3 == 0:
        msgspec.json.decode((folder / "run.json").read_bytes(), type=Manifest)
    elif number % 3 == 1:
        *whole, _ = (folder / "scalars.jsonl").read_bytes()[-4096:].split(b"\n")
        for line in whole[1:]:
            json.loads(line)
    else:
        yield from _read_checkpoint(chance.choice([path for path in folder.iterdir() if CHECKPOINT_NAME.match(path.name)]))


def _read_checkpoint(path: Path) -> Iterator[str]:
    try:
        data = read_bytes(path, path.name)
    except BrokenFile as broken:
        if path.exists():
            yield f"{path.name}: {broken.finding.message}"
        return  # a start that went back has renamed it
    for finding in check_checkpoint(data, path.name).findings:
        yield f"{path.name}: {finding.message}"


def read_beside(reads: int, seed: int) -> list[str]:
    """Return what was torn in so many reads beside a process that writes."""
    chance, torn = random.Random(seed), []
    with TemporaryDirectory() as name:
        folder = Path(name)
        code = f"from tests.faults.readers import *; write_for_ever(Path({name!r}), {seed})"
        writer = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[2])
        try:
            while len([*folder.glob("analysis_*")]) < 2:
                sleep(0.01)
            for number in range(1, reads + 1):
                try:
                    torn += read(folder, number, chance)
                except Exception as error:  # noqa: BLE001  whatever it is, it must not be
                    torn.append(f"read {number}: {type(error).__name__}: {error}")
            if writer.poll() is not None:
                torn.append(f"the writer has ended with {writer.returncode}")
        finally:
            writer.kill()
            writer.wait()
    return torn


def main() -> int:
    """Read so often; exit with 1 where anything was torn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reads", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    arguments = parser.parse_args()
    np.seterr(all="ignore")
    begun = monotonic()
    torn = read_beside(arguments.reads, arguments.seed)
    for words, times in Counter(torn).most_common(50):
        sys.stderr.write(f"{times} x {words}\n")
    sys.stdout.write(f"seed {arguments.seed}: {arguments.reads:,} reads in {monotonic() - begun:.0f} s, {len(torn)} torn\n")
    return 1 if torn else 0


if __name__ == "__main__":
    sys.exit(main())
