"""How the time of each command grows with its input: exponents of processor time, fitted over sizes that double.

    python benchmarks/growth.py [--sizes 4] [--rounds 2] [--only TEXT] [--write]

The time of the same command on a minimal input is subtracted from each time. Log time over log size is fitted by least squares,
over the points with at least 0.05 s left. 1 is linear. `--write` puts the table into benchmarks/README.md.
"""

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from math import log, nan
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from pairs import Usage, machine, measure, write_table  # noqa: E402  it stands beside this file

OURS = str(Path(sys.executable).parent / "ckaudit")
NAMES = ("train_loss_raw", "grad_global_norm", "learning_rate", "step_time", "tokens_per_sec", "val_loss", "mfu", "gpu_mem_bytes")
AIM = 1.1
LEAST = 0.05
"""Least seconds over the time on a minimal input: less cannot be told from the noise of starting."""
LAYERS, PARTS = 24, ("attn.q", "attn.k", "attn.v", "attn.o", "mlp.up", "mlp.down", "mlp.gate", "norm")


@dataclass(frozen=True)
class Axis:
    """One way in which an input grows, and the commands that read it.

    Attributes:
        name: What there is more of.
        write: Writes an input of a given size under a path that does not exist yet.
        base: The smallest size.
        commands: The command lines: IN stands for the input, BESIDE for a second one of the same size, OUT for a free name.
        suffix: How the name of the input ends.
    """

    name: str
    write: Callable[[Path, int], None]
    base: int
    commands: tuple[str, ...]
    suffix: str = ""


def numbers(count: int, seed: int = 0) -> list[list[float]]:
    """Return `count` rows of the values of a healthy run."""
    source = random.Random(seed)
    rows = []
    for step in range(1, count + 1):
        loss = 2 + 5 / (1 + 50 * step / count) + source.gauss(0, 0.02)
        rows.append(
            [loss, 1 + source.random() / 9, 3e-4, 0.5 + source.random() / 99, 1e5 + source.random(), loss + 0.1, 0.4, 6e10]
        )
    return [[round(value, 7) for value in row] for row in rows]


def write_log(folder: Path, lines: int, labels: int = 0) -> None:
    """Write a run folder with only a log, with `labels` slices of the validation loss in each line."""
    folder.mkdir()
    source = random.Random(lines)
    with (folder / "scalars.jsonl").open("w") as stream:
        for step, row in enumerate(numbers(lines, int(folder.suffix == ".beside")), 1):
            line = {"step": step, "time": 1.7e9 + step} | dict(zip(NAMES, row, strict=True))
            line |= {f"slice_val_loss/part{label}": round(2 + source.random() / 9, 5) for label in range(labels)}
            stream.write(json.dumps(line) + "\n")
    (folder / "run.json").write_text(
        json.dumps({"schema_version": "ck.run.v1", "sessions": [{"start": 1.7e9, "end": 1.7e9 + lines + 1}]})
    )


def write_names(folder: Path, names: int) -> None:
    """Write a run folder with a short log of `names` scalars that ckaudit does not know."""
    folder.mkdir()
    source = random.Random(names)
    with (folder / "scalars.jsonl").open("w") as stream:
        for step, row in enumerate(numbers(40), 1):
            own = {f"layer_{name}_stat": round(source.random(), 5) for name in range(names)}
            stream.write(json.dumps({"step": step, "train_loss_raw": row[0]} | own) + "\n")


def write_checkpoints(folder: Path, files: int, names: list[str]) -> None:
    """Write a run folder of `files` checkpoints with the numbers of the named tensors, and a short log."""
    write_log(folder, 50)
    source = random.Random(len(names))
    for step in range(files):
        size = {name: 1 + source.random() / 9 for name in names}
        document = {
            "schema_version": "ck.analysis.v1",
            "step": step,
            "loss": 2 + 5 / (1 + step),
            "weights": {name: {"frobenius_norm": round(10 * value, 4), "mean": 0.0, "std": 0.02} for name, value in size.items()},
            "gradients": {name: {"norm": round(value, 5), "zero_fraction": 0.0} for name, value in size.items()},
            "weight_deltas": {name: {"norm": 0.01, "relative": round(value / 1000, 6)} for name, value in size.items()},
        }
        (folder / f"analysis_checkpoint_step_{step:08d}.json").write_text(json.dumps(document))


def tensors(count: int) -> list[str]:
    """Return `count` names of tensors in the layers of a mixture-of-experts model."""
    return [f"blocks.{place % LAYERS}.mlp.experts.{place // LAYERS}.up.weight" for place in range(count)]


def layers(count: int) -> list[str]:
    """Return the names of the tensors of `count` layers."""
    return [f"blocks.{place}.{part}.weight" for place in range(count) for part in PARTS]


def write_csv(path: Path, rows: int) -> None:
    """Write a CSV table as programs log it."""
    table = [",".join(map(str, (step, *row))) for step, row in enumerate(numbers(rows), 1)]
    path.write_text("\n".join([",".join(("step", *NAMES)), *table, ""]))


def write_jsonl(path: Path, rows: int) -> None:
    """Write lines of JSON as programs log them."""
    lines = (json.dumps({"step": step, "loss": row[0], "lr": row[2]}) + "\n" for step, row in enumerate(numbers(rows), 1))
    path.write_text("".join(lines))


def write_text(path: Path, rows: int) -> None:
    """Write lines of keys and values, as nanoGPT does."""
    lines = (
        f"step:{step}/{rows} train_loss:{row[0]:.4f} grad_norm:{row[1]:.3f} step_avg:{500 * row[3]:.2f}ms\n"
        for step, row in enumerate(numbers(rows), 1)
    )
    path.write_text("".join(lines))


def write_megatron(path: Path, rows: int) -> None:
    """Write lines as Megatron-LM does."""
    line = (
        " iteration {:8d}/{:8d} | consumed samples: {:12d} | elapsed time per iteration (ms): 500.0 | learning rate: 1.0E-04 |"
        " lm loss: {:.6E} | grad norm: {:.3f} |\n"
    )
    path.write_text("".join(line.format(step, rows, 8 * step, row[0], row[1]) for step, row in enumerate(numbers(rows), 1)))


def write_long_line(path: Path, length: int) -> None:
    """Write a text log in which one line in ten is long."""
    lines = (
        f"step:{step}/500 train_loss:{row[0]:.4f}{' x' * (length // 2) if step % 10 == 0 else ''}\n"
        for step, row in enumerate(numbers(500), 1)
    )
    path.write_text("".join(lines))


def write_wide_table(path: Path, columns: int) -> None:
    """Write a table of many columns."""
    head = ",".join(("step", "loss", *(f"c{column}" for column in range(columns))))
    cells = ",1.25" * columns
    path.write_text("\n".join([head, *(f"{step},{row[0]}{cells}" for step, row in enumerate(numbers(300), 1)), ""]))


def write_documents(path: Path, count: int, words: int = 60) -> None:
    """Write documents of random words."""
    source = random.Random(count)
    known = ["".join(source.choices("abcdefghijklmnop", k=source.randint(2, 9))) for _ in range(5000)]
    path.write_text("".join(json.dumps({"text": " ".join(source.choices(known, k=words))}) + "\n" for _ in range(count)))


def write_fleet(folder: Path, runs: int) -> None:
    """Write many short runs side by side."""
    folder.mkdir()
    for number in range(runs):
        write_log(folder / f"run-{number:05d}", 200)


AXES = (
    Axis(
        "lines",
        write_log,
        8_000,
        (
            "validate IN",
            "triage IN",
            "metrics IN --format csv",
            "coverage IN",
            "report IN -o OUT.html",
            "diff IN BESIDE",
            "gate IN --against BESIDE",
            "watch IN",
        ),
    ),
    Axis("lines", write_log, 60_000, ("export IN -o OUT.csv",)),
    Axis(
        "tensors",
        lambda path, count: write_checkpoints(path, 12, tensors(count)),
        800,
        (
            "validate IN",
            "triage IN",
            "metrics IN --format csv",
            "coverage IN",
            "report IN -o OUT.html",
            "diff IN BESIDE",
            "watch IN",
            "convert IN -o OUT",
        ),
    ),
    Axis(
        "layers",
        lambda path, count: write_checkpoints(path, 12, layers(count)),
        75,
        ("validate IN", "triage IN", "report IN -o OUT.html"),
    ),
    Axis(
        "files",
        lambda path, count: write_checkpoints(path, count, layers(12)),
        100,
        ("validate IN", "triage IN", "report IN -o OUT.html", "diff IN BESIDE", "watch IN", "convert IN -o OUT", "hash IN"),
    ),
    Axis(
        "labels",
        lambda path, count: write_log(path, 300, count),
        80,
        ("validate IN", "triage IN", "report IN -o OUT.html", "diff IN BESIDE"),
    ),
    Axis("names in a line", write_names, 3_200, ("validate IN", "triage IN")),
    Axis("rows of CSV", write_csv, 20_000, ("import IN -o OUT", "triage IN"), ".csv"),
    Axis("rows of JSON lines", write_jsonl, 150_000, ("import IN -o OUT",), ".jsonl"),
    Axis("lines of keys and values", write_text, 100_000, ("import IN -o OUT",), ".log"),
    Axis("lines of Megatron", write_megatron, 80_000, ("import IN -o OUT",), ".log"),
    Axis("characters of a line", write_long_line, 60_000, ("import IN -o OUT",), ".log"),
    Axis("columns of a table", write_wide_table, 250, ("import IN -o OUT",), ".csv"),
    Axis("documents", write_documents, 500, ("data IN",), ".jsonl"),
    Axis("words of a document", lambda path, count: write_documents(path, 20, count), 2_000, ("data IN",), ".jsonl"),
    Axis("runs", write_fleet, 8, ("fleet IN/* -o OUT --jobs 1",)),
)


def write_apart(axis: Axis, path: Path, size: int) -> None:
    """Write an input in a separate process.

    The reported memory of a command is never below that of the process that starts it, so this one writes no input.
    """
    if (child := os.fork()) == 0:
        axis.write(path, size)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        raise SystemExit(f"{path} could not be written")


def slope(across: list[float], up: list[float]) -> float:
    """Return the slope of the least-squares line."""
    middle, height = sum(across) / len(across), sum(up) / len(up)
    return sum((x - middle) * (y - height) for x, y in zip(across, up, strict=True)) / sum((x - middle) ** 2 for x in across)


def usage(command: str, axis: Axis, size: int, root: Path, rounds: int) -> Usage:
    """Return the least usage of a command on an input of one size, over some rounds."""
    inputs = {}
    for word, suffix in (("IN", ""), ("BESIDE", ".beside")):
        inputs[word] = path = root / f"{axis.name.replace(' ', '-')}-{size}{suffix}{axis.suffix}"
        if word in command.split() + command.replace("/*", "").split() and not path.exists():
            write_apart(axis, path, size)
    taken = []
    for number in range(rounds):
        words = []
        for word in command.split():
            if word == "IN/*":
                words += sorted(map(str, inputs["IN"].iterdir()))
            else:
                words.append(str(inputs.get(word, word.replace("OUT", str(root / f"out-{number}-{random.randrange(2**40)}")))))
        taken.append(measure([OURS, *words], 0, 1))
    return min(taken, key=lambda used: used.cpu)


def row(command: str, axis: Axis, sizes: int, root: Path, rounds: int) -> tuple[str, float]:
    """Measure one command on one axis; return its row and its exponent."""
    start = usage(command, axis, max(1, axis.base // 256), root, rounds + 2)
    counts = [axis.base * 2**place for place in range(sizes)]
    used = [usage(command, axis, count, root, rounds) for count in counts]
    own = [each.cpu - start.cpu for each in used]
    points = [(log(count), log(seconds)) for count, seconds in zip(counts, own, strict=True) if seconds >= LEAST]
    exponent = slope(*map(list, zip(*points, strict=True))) if len(points) > 1 else nan
    name = command.replace("IN/*", "RUNS").replace("IN", "RUN" if not axis.suffix else "FILE").replace("BESIDE", "OTHER")
    seconds = f"{start.cpu:.2f} | {own[0]:.2f} | {own[-1]:.2f}"
    memory = f"{used[0].memory:.0f} | {used[-1].memory:.0f}"
    return f"| `{name}` | {axis.name} | {counts[0]:,} to {counts[-1]:,} | {seconds} | {exponent:.2f} | {memory} |", exponent


def main() -> int:
    """Measure everything, print the table, and write it if asked; return 1 if a command grows too fast."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, default=4, help="each twice the one before")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="measure only rows that hold this text, as 'triage' or 'tensors'")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    wanted = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    rows = []
    for axis in AXES:
        with tempfile.TemporaryDirectory() as temporary:
            for command in axis.commands:
                if wanted.only in f"{command} {axis.name}":
                    rows.append(row(command, axis, wanted.sizes, Path(temporary), wanted.rounds))
                    print(rows[-1][0], flush=True)
    head = "| command | more | from, to | start, s | least, s | most, s | exponent | MiB, least | MiB, most |"
    caption = f"{machine()}; {wanted.sizes} sizes, the least of {wanted.rounds} rounds each; the aim is {AIM}."
    table = "\n".join([caption, "", head, "|---" * (head.count("|") - 1) + "|", *(text for text, _ in rows)])
    if wanted.write:
        write_table("growth", table)
    return 1 if any(exponent > AIM for _, exponent in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
