"""What triage says about healthy trainings of many model families, recorded through their users' own tools.

    python benchmarks/families.py [--only NAME,...] [--seeds 3] [--jobs 2] [--cache FOLDER] [--write]

Every training is a folder FAMILY.SEED of the cache. Existing folders are kept; only missing ones are trained. `--write` puts the
table into docs/families.md.
"""

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]

from ckaudit.lab.zoo import FAMILIES  # noqa: E402  stands beside this
from ckaudit.lab.zoo.trainers import train  # noqa: E402

PAGE = ROOT / "docs" / "families.md"
DONE = "trained"
MARK = "<!-- written by benchmarks/families.py -->"
THROUGH = {
    "transformers": "Trainer of transformers",
    "sft": "SFTTrainer of TRL",
    "dpo": "DPOTrainer of TRL",
    "lightning": "Lightning",
    "loop": "a loop with Recorder",
}


def record(name: str, seeds: Sequence[int], cache: Path) -> None:
    """Train a family once for each seed, in this process."""
    for seed in seeds:
        folder = cache / f"{name}.{seed}"
        if (folder / DONE).exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)
        start = perf_counter()
        train(FAMILIES[name], folder, seed)
        shutil.rmtree(folder.with_name(f"{folder.name}.out"), ignore_errors=True)
        (folder / DONE).write_text(f"{perf_counter() - start:.1f} s\n", encoding="utf-8")


def row(name: str, seeds: Sequence[int], cache: Path) -> tuple[str, int]:
    """Return a family's row of the table, and the number of its seeds with a finding of sev2 or worse."""
    from ckaudit.audit import triage

    reports = [triage(cache / f"{name}.{seed}") for seed in seeds]
    cells = [
        ", ".join(sorted({f"{finding.severity} {finding.code}" for finding in report.findings if finding.severity != "note"}))
        for report in reports
    ]
    notes = sorted({finding.code for report in reports for finding in report.findings if finding.severity == "note"})
    recipe = FAMILIES[name]
    made = f"{recipe.optimizer}, {recipe.schedule}{', warmup' if recipe.warmup else ''}, batch {recipe.batch}"
    return f"| {name} | {THROUGH[recipe.through]} | {made} | " + " | ".join(
        cell or "-" for cell in cells
    ) + f" | {', '.join(notes)} |", sum(map(bool, cells))


def table(names: Sequence[str], seeds: Sequence[int], cache: Path) -> str:
    """Return the table of all families, and a line with the counts."""
    rows = [row(name, seeds, cache) for name in names]
    head = "| family | through | trained with | " + " | ".join(f"seed {seed}" for seed in seeds) + " | notes |"
    alarmed, runs = sum(count for _, count in rows), len(names) * len(seeds)
    told = f"{alarmed} of {runs} healthy trainings of {len(names)} families have a finding of sev2 or worse."
    return "\n".join([told, "", head, "|---" * (head.count("|") - 1) + "|", *(line for line, _ in rows)])


def write_table(page: Path, mark: str, table: str) -> None:
    """Replace everything behind a mark of a page by a table."""
    text = page.read_text(encoding="utf-8")
    page.write_text(text[: text.index(mark) + len(mark)] + "\n\n" + table + "\n", encoding="utf-8")


def train_apart(script: str, name: str, options: Sequence[str]) -> None:
    """Run a recording script in its own process, and print how it ended."""
    done = subprocess.run([sys.executable, script, "--record", *options], capture_output=True, text=True, check=False)
    print(f"{name}: {'trained' if done.returncode == 0 else done.stderr[-2000:]}", flush=True)


def main() -> None:
    """Train what is missing, judge everything, and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default=",".join(FAMILIES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ckaudit" / "families")
    parser.add_argument("--record", action="store_true", help="train in this process, and judge nothing")
    parser.add_argument("--write", action="store_true", help="put the table into docs/families.md")
    wanted = parser.parse_args()
    names, seeds = wanted.only.split(","), range(wanted.seeds)
    if wanted.record:
        for name in names:
            record(name, seeds, wanted.cache)
        return
    wanted.cache.mkdir(parents=True, exist_ok=True)

    def start(name: str) -> None:
        if all((wanted.cache / f"{name}.{seed}" / DONE).exists() for seed in seeds):
            return
        train_apart(__file__, name, ["--only", name, "--seeds", str(wanted.seeds), "--cache", str(wanted.cache)])

    with ThreadPoolExecutor(wanted.jobs) as pool:
        list(pool.map(start, names))
    found = table(names, seeds, wanted.cache)
    print(found)
    if wanted.write:
        write_table(PAGE, MARK, found)


if __name__ == "__main__":
    main()
