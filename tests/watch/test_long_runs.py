"""A run far longer than what is kept of it: the watch tells what a triage of the whole finds, and no more."""

import json
import math
import random
from collections.abc import Iterator
from pathlib import Path

from ckaudit.audit import triage
from ckaudit.contract.schema.report import Finding
from ckaudit.watch.announcer import ClockReading
from ckaudit.watch.growing_run import MAX_VALUES
from ckaudit.watch.watcher import Watcher

STEPS = 4 * MAX_VALUES
SPIKES = (37_000, 55_000)
BREAKS = STEPS - 1000


def lines() -> Iterator[str]:
    """Yield a run that learns all the way, with two spikes of 20 steps, evaluations, and a loss that is NaN at the end."""
    draw, now = random.Random(1), 0.0
    for step in range(1, STEPS + 1):
        loss, norm = 2 + 7 * math.exp(-step / 20_000), 1 + abs(draw.gauss(0, 0.15))
        ill = any(first <= step < first + 20 for first in SPIKES)
        now += 0.05 + abs(draw.gauss(0, 0.003))
        row = {
            "step": step,
            "time": round(now, 3),
            "grad_global_norm": 30 * norm if ill else norm,
            "tokens_seen": 2048 * step,
            "train_loss_raw": "NaN" if step >= BREAKS else loss + draw.gauss(0, 0.03) + 4 * ill,
            "learning_rate": 3e-4 * min(1, step / 2000) * (0.55 + 0.45 * math.cos(math.pi * step / STEPS)),
        }
        if step % 1000 == 0:
            row["val_loss"] = loss + 0.05 + draw.gauss(0, 0.005)
        yield json.dumps(row) + "\n"


def names(findings: list[Finding]) -> list[tuple[str, str | None, int | None]]:
    return sorted((each.code, each.where, each.first_step) for each in findings if each.severity != "note")


def test_what_is_forgotten_changes_no_verdict(tmp_path: Path) -> None:
    written, watcher, told = list(lines()), Watcher(tmp_path, stall_after=1e9), []
    for part in range(0, STEPS, 2048):
        with (tmp_path / "scalars.jsonl").open("a") as log:
            log.writelines(written[part : part + 2048])
        told += [event.finding for event in watcher.poll(ClockReading(float(100 * part), 0.0)) if event.event == "finding"]
    assert watcher._history.in_full > MAX_VALUES
    found = names(triage(tmp_path).findings)
    assert {code for code, _, _ in found} == {"NUM001", "GRAD002", "LOSS001"}
    assert names(told) == found
