"""The state of a watch as Prometheus reads it."""

import re
import urllib.error
import urllib.request

import pytest

from ckaudit.contract.schema.watch import EarlySign, Gauge, Snapshot, WatchEvent
from ckaudit.errors import CkauditError, UsageError
from ckaudit.watch.prometheus import Exporter, exposition

SAMPLE = re.compile(
    r'(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\["\\n])*",?)*)\})? '
    r"(?P<value>NaN|[+-]Inf|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)  # the grammar of the format, from its specification


def snapshot(name="runs/a", **facts):
    event = WatchEvent(schema_version="ck.watch.v1", event="finding", time=1.0, run=name, message="m", severity="sev1")
    usual = {"step": 7, "planned": 100, "silence": 1.5, "usual": 1.0, "state": "running", "pace": ()}
    vitals = (Gauge(name="train_loss_raw", unit="nats", value=2.5, step=7), Gauge(name="odd.name", unit="1", value="NaN", step=7))
    more = {"vitals": vitals, "alerts": (event, event), "early": (EarlySign(name="loss_rises", judged=True, since=3),)}
    return Snapshot(run=name, **{**usual, **more, **facts})


def samples(text):
    """Read a text as Prometheus does, and return the value of each series."""
    found, typed = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            name = line.split(" ")[2]
            assert name not in typed
            typed.add(name)
        elif not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match, line
            assert match["name"] in typed
            key = (match["name"], match["labels"] or "")
            assert key not in found
            found[key] = match["value"]
    return found


def test_every_line_is_one_that_prometheus_reads():
    hostile = 'runs/"a"\n\\b\x1b[31m'
    found = samples(exposition([snapshot(), snapshot(hostile, step=None, planned=None, silence=None)], now=12.5))
    assert found["ckaudit_watch_runs", ""] == "2"
    assert found["ckaudit_run_step", 'run="runs/a"'] == "7"
    assert found["ckaudit_run_findings_total", 'run="runs/a",severity="sev1"'] == "2"
    assert found["ckaudit_run_state", 'run="runs/a",state="running"'] == "1"
    assert found["ckaudit_run_state", 'run="runs/a",state="ended"'] == "0"
    assert found["ckaudit_run_train_loss_raw", 'run="runs/a"'] == "2.5"
    assert found["ckaudit_run_odd_name", 'run="runs/a"'] == "NaN"
    assert found["ckaudit_run_early_sign", 'run="runs/a",sign="loss_rises"'] == "1"
    assert len([key for key in found if key[0] == "ckaudit_run_step"]) == 1


def test_nothing_watched_is_a_text_too():
    assert samples(exposition([], now=1.0)) == {("ckaudit_watch_runs", ""): "0", ("ckaudit_watch_time_seconds", ""): "1"}


def test_an_endpoint_answers_with_the_newest_state():
    exporter = Exporter("127.0.0.1:0", print)
    try:
        exporter.update(lambda: [snapshot()])
        address = f"http://127.0.0.1:{exporter.port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert samples(answer.read().decode())["ckaudit_run_step", 'run="runs/a"'] == "7"
        exporter.update(lambda: [snapshot(step=8)], at_once=True)
        with urllib.request.urlopen(f"{address}/metrics?x=1", timeout=10) as answer:
            assert samples(answer.read().decode())["ckaudit_run_step", 'run="runs/a"'] == "8"
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/secret", timeout=10)
        refused.value.close()
        with pytest.raises(CkauditError, match="cannot be opened"):
            Exporter(f"127.0.0.1:{exporter.port}", print)
    finally:
        exporter.close()


def test_a_file_that_cannot_be_written_is_complained_about_once(tmp_path):
    with pytest.raises(UsageError, match="no file that can be written"):
        Exporter(str(tmp_path / "nowhere" / "x.prom"), print)
    (tmp_path / "folder").mkdir()
    messages = []
    exporter = Exporter(str(tmp_path / "folder" / "x.prom"), messages.append)
    (tmp_path / "folder").rmdir()
    for _ in range(2):
        exporter.update(list, at_once=True)
    assert len(messages) == 1
    (tmp_path / "folder").mkdir()
    exporter.update(list, at_once=True)
    assert (tmp_path / "folder" / "x.prom").read_text().endswith("\n")
