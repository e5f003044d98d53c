"""What `--step N` says is what would have been said at step N."""

import json
import shlex
import shutil
from pathlib import Path

import msgspec
import pytest

from ckaudit.audit import triage
from ckaudit.contract.io.files import CHECKPOINT_NAME
from ckaudit.contract.schema.report import Report

RUNS = Path(__file__).parents[1] / "fixtures" / "runs"


def known_at(run: Path, step: int, folder: Path) -> Path:
    """Copy what the run had written when `step` had ended."""
    folder.mkdir()
    shutil.copy(run / "run.json", folder)
    lines = (run / "scalars.jsonl").read_text().splitlines(keepends=True)
    (folder / "scalars.jsonl").write_text("".join(line for line in lines if json.loads(line)["step"] <= step))
    for file in run.iterdir():
        match = CHECKPOINT_NAME.match(file.name)
        if match and int(match["step"]) <= step:
            shutil.copy(file, folder)
    return folder


def verdict(report: Report) -> bytes:
    """Return everything a report says but how it was made."""
    response = [line.replace(shlex.quote(report.subject), "RUN") for line in report.response]
    return msgspec.json.encode(msgspec.structs.replace(report, subject="", notes=[], files=0, response=response))


def steps_to_replay(run: Path, *, every: int) -> list[int]:
    """Return the steps around each `every`-th checkpoint: before it, its own, and after it."""
    names = (CHECKPOINT_NAME.match(file.name) for file in run.iterdir())
    checkpoints = sorted({int(name["step"]) for name in names if name})
    return sorted({step + near for step in checkpoints[1:-1:every] for near in (-1, 0, 1)} | {1})


@pytest.mark.parametrize(("name", "every"), [("nan_batch", 4), ("no_warmup_spike", 8)])
def test_verdict_at_each_step_equals_the_batch_verdict(name: str, every: int, tmp_path: Path) -> None:
    run = RUNS / name
    for step in steps_to_replay(run, every=every):
        replayed = triage(known_at(run, step, tmp_path / str(step)))
        assert verdict(replayed) == verdict(triage(run, step=step)), f"step {step}"
        shutil.rmtree(tmp_path / str(step))
