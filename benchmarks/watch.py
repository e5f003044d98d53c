"""What watching costs: the delay until a step is seen and the share of a core, for a long log that grows by some a second."""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

VALUES = ("learning_rate", "grad_global_norm", "update_to_weight", "tokens_seen", "loss_scale", "max_attn_logit")


def line(step: int, at: float, draw: random.Random) -> str:
    """Return a line as a recorder writes it, with a loss that falls and noise around it."""
    loss = 2 + 6 * math.exp(-step / 2e5) + draw.gauss(0, 0.02)
    values = {
        "learning_rate": 1e-3,
        "grad_global_norm": 1 + abs(draw.gauss(0, 0.1)),
        "update_to_weight": 1e-3 + 1e-5 * draw.random(),
    }
    more = {"tokens_seen": step * 2048, "loss_scale": 65536.0, "max_attn_logit": 20 + draw.random(), "steps_seen": step}
    return json.dumps({"step": step, "time": round(at, 3), "session": 0, "train_loss_raw": loss, **values, **more}) + "\n"


def row(step: int, at: float, draw: random.Random) -> str:
    """Return the same numbers as a row of a CSV."""
    values = json.loads(line(step, at, draw))
    return ",".join(str(values[name]) for name in ("step", "train_loss_raw", *VALUES)) + "\n"


OURS = line


def used(process: int) -> float:
    """Return the processor time of a process and its threads, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(process: int) -> float:
    """Return the memory of a process, in MB."""
    text = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    return next(int(each.split()[1]) for each in text.splitlines() if each.startswith("VmRSS")) / 1024


def measure(
    folder: Path, steps: int, rate: float, seconds: float, *, panel: bool = False, foreign: bool = False
) -> dict[str, float]:
    """Watch a log of `steps` lines, to which `rate` lines a second are added, and return the measurements."""
    draw, began = random.Random(0), time.time() - steps / rate
    log, line = (folder / "log.csv", row) if foreign else (folder / "scalars.jsonl", OURS)
    with log.open("w") as stream:
        stream.write(f"{','.join(('step', 'loss', *VALUES))}\n" if foreign else "")
        stream.writelines(line(step, began + step / rate, draw) for step in range(1, steps + 1))
    (folder / "run.json").write_text(json.dumps({"schema_version": "ck.run.v1", "sessions": [{"start": began}]}))
    output = folder / "out"
    process = _start(log if foreign else folder, output, panel=panel)
    watch = process.pid
    ready = time.monotonic()
    with log.open("a", buffering=1) as stream:
        start, step = None, steps
        while start is None or time.monotonic() - start < seconds:
            step += 1
            stream.write(line(step, time.time(), draw))
            time.sleep(1 / rate)
            if start is None and time.monotonic() - ready > 15 + steps / 100_000:
                watch = _child(process.pid) if panel else process.pid
                start, before = time.monotonic(), used(watch)
        share = (used(watch) - before) / (time.monotonic() - start)
        held = memory(watch)
        seen = math.nan if panel or foreign else _seen(stream, step + 1, draw, output)
    process.terminate()
    process.wait()
    return {"share of a core, %": 100 * share, "memory, MB": held, "seconds until told": seen}


def _start(source: Path, output: Path, *, panel: bool) -> "subprocess.Popen[bytes]":
    """Start a watch that writes lines into a file, or draws its panel on its own terminal."""
    words = [sys.executable, "-m", "ckaudit", "watch", str(source), "--format", "panel" if panel else "jsonl"]
    if panel:
        words = ["script", "-qec", " ".join(words), str(output)]
    with output.open("wb") as out:
        return subprocess.Popen(
            words, stdout=subprocess.DEVNULL if panel else out, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL
        )


def _child(process: int) -> int:
    found = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="utf-8").split()
    return _child(int(found[0])) if found else process


def _seen(stream: object, step: int, draw: random.Random, output: Path) -> float:
    """Return the delay from a step whose loss is NaN until the watch reports it."""
    text = json.loads(line(step, time.time(), draw)) | {"train_loss_raw": "NaN"}
    stream.write(json.dumps(text) + "\n")  # type: ignore[attr-defined]
    wrote = time.monotonic()
    while b"NUM001" not in output.read_bytes() and time.monotonic() - wrote < 60:
        time.sleep(0.01)
    return time.monotonic() - wrote


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rate", type=float, default=20)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--only", default="", help="measure only cases whose name holds this text")
    given = parser.parse_args()
    for name, how in (("without panel", {}), ("with panel", {"panel": True}), ("a CSV", {"foreign": True})):
        if given.only in name:
            with tempfile.TemporaryDirectory() as folder:
                found = measure(Path(folder), given.steps, given.rate, given.seconds, **how)
            print(f"{name}, {given.steps:,} steps:", {name: round(value, 2) for name, value in found.items()})


if __name__ == "__main__":
    main()
