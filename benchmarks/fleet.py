"""How long `ckaudit fleet` takes, against as many processes that only parse the same checkpoints, side by side.

python benchmarks/fleet.py [--runs 40] [--checkpoints 160] [--rounds 3] [--jobs 2] [--write]

The fleet consists of recorded runs of `fixtures/runs`, one in ten of them ill. The recorded checkpoints, of 50 KB each, are
repeated until a run has the requested number.
"""

import argparse
import gc
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import orjson
import zstandard

from ckaudit.fleet.audit_run import audit_run
from ckaudit.fleet.source import RunSource

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from pairs import machine, measure, write_table  # noqa: E402

RUNS = HERE.parent / "fixtures" / "runs"
ILL = ("lr_too_high", "nan_batch", "overfit_tiny", "no_warmup_spike")
OWN = ("learning_rate", "steps_seen", "tokens_seen")
"""The numbers of a line that belong to its own step; the others may be repeated at another step."""
PARSE = """
import os, sys, multiprocessing, orjson
def parse(folder):
    for name in os.listdir(folder):
        if name.startswith("analysis"):
            with open(os.path.join(folder, name), "rb") as stream:
                orjson.loads(stream.read())
if __name__ == "__main__":
    root = sys.argv[1]
    with multiprocessing.get_context("fork").Pool(int(sys.argv[2])) as pool:
        for _ in pool.imap_unordered(parse, [os.path.join(root, name) for name in os.listdir(root)]):
            pass
"""


def write_fleet(root: Path, runs: int, checkpoints: int) -> None:
    """Write `runs` run folders of `checkpoints` checkpoints each below `root`."""
    made = {name: list(files_of(RUNS / name, checkpoints)) for name in ("healthy", *ILL)}
    for number in range(runs):
        name = ILL[number // 10 % len(ILL)] if number % 10 == 9 else "healthy"
        folder = root / f"run-{number:05d}"
        folder.mkdir(parents=True)
        for file, data in made[name]:
            (folder / file).write_bytes(data)


def files_of(folder: Path, checkpoints: int) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a run with the requested number of checkpoints: each is the recorded one with the nearest step.

    The log repeats at each of these steps the line of the recorded step.
    """
    documents = {document["step"]: document for document in map(read, folder.glob("analysis_checkpoint_*"))}
    lines = [json.loads(line) for line in (folder / "scalars.jsonl").read_bytes().splitlines()]
    recorded = {line["step"]: line for line in lines}
    every = max(1, max(documents) // max(1, checkpoints - 1))
    wanted = {
        step: min((known for known in documents if known or not step), key=lambda known: abs(known - step))
        for step in range(0, every * checkpoints, every)
    }
    manifest = json.loads((folder / "run.json").read_bytes()) | {"cadence": [{"until": None, "every": every}]}
    yield "run.json", json.dumps(manifest).encode()
    last = max(wanted)
    own = {step: {name: line[name] for name in ("time", *OWN) if name in line} for step, line in recorded.items()}
    log = (recorded[wanted.get(step, step)] | own[step] | {"step": step} for step in range(1, last + 1))
    yield "scalars.jsonl", b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in log)
    for step, source in wanted.items():
        document = {name: value for name, value in documents[source].items() if name != "history"}
        document |= {"step": step, "triggers": ["cadence"]} | {"time": own.get(step, own[1])["time"]}
        scalars = document.get("scalars", {})
        document["scalars"] = scalars | {name: value for name, value in own.get(step, {}).items() if name in scalars}
        yield f"analysis_checkpoint_step_{step:08d}.json", json.dumps(document, separators=(",", ":")).encode()


def read(path: Path) -> dict[str, Any]:
    """Return a checkpoint."""
    data = path.read_bytes()
    document: dict[str, Any] = json.loads(
        zstandard.ZstdDecompressor().stream_reader(data).read() if path.suffix == ".zst" else data
    )
    return document


def one_by_one(root: Path) -> tuple[float, float]:
    """Return processor seconds for auditing the runs below a folder and for parsing their checkpoints, taking turns."""
    audited, parsed = [], []
    folders = sorted(root.iterdir())
    audit_run(RunSource(name="warm", path=str(folders[0])))
    gc.collect()
    gc.freeze()
    for folder in folders:
        start = process_time()
        audit_run(RunSource(name=folder.name, path=str(folder)))
        middle = process_time()
        for path in folder.glob("analysis*"):
            orjson.loads(path.read_bytes())
        audited.append(middle - start)
        parsed.append(process_time() - middle)
    return median(audited), median(parsed)


def whole(root: Path, jobs: int, rounds: int) -> list[tuple[float, float, float, float]]:
    """Return wall seconds of a first audit, of a second audit and of the parsing processes, and the memory of the command."""
    ours = [str(Path(sys.executable).parent / "ckaudit"), "fleet", f"{root}/runs/*", "--jobs", str(jobs), "--no-config"]
    ours += ["-o", str(root / "data")]
    (root / "parse.py").write_text(PARSE)
    found = []
    for _ in range(rounds):
        shutil.rmtree(root / "data", ignore_errors=True)
        parsed = measure([sys.executable, str(root / "parse.py"), str(root / "runs"), str(jobs)])
        first, second = measure(ours, 1), measure(ours, 1)  # exit code 1: some runs are ill
        found.append((first.wall, second.wall, parsed.wall, max(first.memory, second.memory)))
    return found


def main() -> None:
    """Measure, print the table, and write it if asked."""
    parser = argparse.ArgumentParser()
    for option, default in (("--runs", 40), ("--checkpoints", 160), ("--rounds", 3), ("--jobs", 2)):
        parser.add_argument(option, type=int, default=default)
    parser.add_argument("--keep", type=Path, help="write the fleet there, and measure nothing")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    if wanted.keep:
        write_fleet(wanted.keep, wanted.runs, wanted.checkpoints)
        return
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        write_fleet(root / "runs", wanted.runs, wanted.checkpoints)
        audited, parsed = one_by_one(root / "runs")
        rounds = whole(root, wanted.jobs, wanted.rounds)
    first, second, parses, memory = (median(column) for column in zip(*rounds, strict=True))
    name = f"{wanted.runs:,} runs of {wanted.checkpoints} checkpoints of 50 KB"
    rows = [
        ("one run, processor time", "orjson.loads of its checkpoints", audited, parsed, "1.5"),
        (f"{name}, {wanted.jobs} processes", "as many processes that parse", first, parses, "1.5"),
        (f"{name}, nothing changed", "the first audit", second, first, "0.02"),
    ]
    lines = [f"| {ours} | {peer} | {a:.3f} | {b:.3f} | {a / b:.3g} | {aim} |" for ours, peer, a, b, aim in rows]
    head = f"{machine()}; medians; {memory:.0f} MiB in the command, without its processes."
    table = "\n".join([head, "", "| what | against | s | s | ratio | aim |", "|---|---|---|---|---|---|", *lines])
    print(table)
    if wanted.write:
        write_table("fleet", table)


if __name__ == "__main__":
    main()
