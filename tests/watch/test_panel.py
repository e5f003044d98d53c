"""The panel of a watch: what it shows, in any width, and on a real terminal."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ckaudit.audit import triage
from ckaudit.contract.schema.watch import VERSION, Gauge, Snapshot, WatchEvent
from ckaudit.metrics.catalogue import PER_MINUTE, PER_STEP
from ckaudit.reports.terminal.screen_text import columns
from ckaudit.reports.terminal.watch import event_lines, panel
from ckaudit.reports.view import View
from ckaudit.watch.announcer import EARLY_SIGNS
from ckaudit.watch.rounds import WatchRounds

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "fixtures" / "runs"


@pytest.fixture(scope="module")
def rounds() -> WatchRounds:
    watched = WatchRounds([RUNS / "lr_too_high", RUNS / "healthy"], stall_after=1e9)
    for _ in range(3):
        list(watched.poll())
    return watched


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [60, 80, 100, 119, 120, 200])
def test_it_fits_any_width_from_60_columns(rounds: WatchRounds, width: int, unicode: bool) -> None:
    lines = panel(rounds.snapshots(), View(width=width, unicode=unicode), 60)
    assert max(map(columns, lines)) <= width
    assert unicode or all(each.isascii() for each in lines)


@pytest.mark.parametrize("height", [10, 24, 50])
def test_it_is_never_higher_than_the_screen(rounds: WatchRounds, height: int) -> None:
    assert len(panel(rounds.snapshots(), View(width=80), height)) <= height


def test_it_shows_the_vital_signs_the_pace_and_the_gravest_alerts(rounds: WatchRounds) -> None:
    text = "\n".join(panel(rounds.snapshots(), View(width=130), 100))
    assert all(f"\n{name} " in text for name in PER_STEP)
    assert all(f"   {name} " in text for name in PER_MINUTE)
    assert (len(PER_STEP), len(PER_MINUTE)) == (10, 7)
    assert re.search(r"loss_scale +not recorded", text)
    assert "sev1     " in text
    assert "nothing found" in text
    assert text.index("sev1") < text.index("sev2")


def test_gauges_are_the_newest_values_of_the_log(rounds: WatchRounds) -> None:
    last = json.loads((RUNS / "lr_too_high" / "scalars.jsonl").read_text().splitlines()[-1])
    gauges = {gauge.name: gauge for gauge in rounds.snapshots()[0].vitals}
    assert gauges["train_loss_raw"].value == last["train_loss_raw"]
    assert gauges["grad_global_norm"].value == last["grad_global_norm"]
    assert gauges["tokens_seen"].value == last["tokens_seen"]
    assert gauges["train_loss_raw"].step == last["step"]


def snapshot(**changed: object) -> Snapshot:
    given = {
        "run": "runs/a",
        "step": 7,
        "planned": 10,
        "silence": 3.0,
        "usual": 0.5,
        "state": "stalled",
        "pace": (),
        "alerts": (),
        "vitals": (Gauge(name="train_loss_raw", unit="nats/token", value="NaN", step=7, recent=(2.0, "NaN")),),
    }
    return Snapshot(**given | changed)  # type: ignore[arg-type]


def test_what_is_not_a_number_is_said_as_a_word() -> None:
    assert any(re.match("train_loss_raw +NaN nats/token", each) for each in panel([snapshot()], View(width=80), 20))


def test_it_says_how_long_nothing_came() -> None:
    assert panel([snapshot()], View(width=80), 20)[0] == "stalled runs/a  step 7 of 10, last line 3.0 s ago (usual 0.5 s)"


def test_the_headline_says_which_early_signs_are_there(rounds: WatchRounds) -> None:
    heads = {shot.run: panel([shot], View(width=200), 50)[1] for shot in rounds.snapshots()}
    ill, well = (triage(RUNS / name) for name in ("lr_too_high", "healthy"))
    since = min(finding.first_step or 0 for finding in ill.findings if finding.code == "LOSS004")
    assert heads[str(RUNS / "lr_too_high")].startswith(f"early signs: loss_rises since step {since}; ")
    assert not {finding.code for finding in well.findings if finding.severity != "note"} & set(EARLY_SIGNS)
    assert heads[str(RUNS / "healthy")].startswith("early signs: no loss_rises, ")


def test_names_and_messages_do_nothing_to_the_screen() -> None:
    evil = "\x1b[2J\x1b]0;title\x07\r\n"
    event = WatchEvent(schema_version=VERSION, event="stall", time=0.0, run=evil, message=evil, severity="sev1")
    lines = panel([snapshot(run=evil, alerts=(event,))], View(width=80), 20)
    assert not any(set("\x1b\x07\r\n") & set(each) for each in (*lines, event_lines(event, View())))


def _until(master: int, word: bytes, seconds: float) -> bytes:
    """Read from a terminal until it has shown a word."""
    shown, end = b"", time.monotonic() + seconds
    while word not in shown and time.monotonic() < end:
        if select.select([master], [], [], 0.2)[0]:
            try:
                shown += os.read(master, 65536)
            except OSError:  # Linux says so when the other side is closed
                break
    return shown


def test_on_a_terminal_it_is_live_and_leaves_its_findings_behind(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema_version": "ck.run.v1", "sessions": [{"start": 0.0}]}')
    log = tmp_path / "scalars.jsonl"
    log.write_text("".join(json.dumps({"step": step, "train_loss_raw": 3.25}) + "\n" for step in range(1, 20)))
    master, slave = pty.openpty()
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "80", "LINES": "30", "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "ckaudit", "watch", str(tmp_path)], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    assert b"3.25" in _until(master, b"3.25", 30)
    with log.open("a") as stream:
        stream.writelines(json.dumps({"step": step, "train_loss_raw": "NaN"}) + "\n" for step in range(20, 26))
    assert b"not finite" in _until(master, b"not finite", 30)
    (tmp_path / "run.json").write_text('{"schema_version": "ck.run.v1", "sessions": [{"start": 0.0, "end": 9.0}]}')
    rest = _until(master, b"1 sev0", 30)
    assert process.wait(30) == 0
    os.close(master)
    assert b"\x1b[?1049l" in rest  # back from the other screen
    assert b"NUM001" in rest.rpartition(b"\x1b[?1049l")[2]
