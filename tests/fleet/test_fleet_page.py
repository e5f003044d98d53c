"""`ckaudit fleet --html --reports`: an overview whose lines open the reports of ill runs, each written once."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from ckaudit.cli.fleet import file_name
from ckaudit.cli.run import run
from ckaudit.contract.schema.fleet import FleetRun

RUNS = Path(__file__).parents[2] / "fixtures" / "runs"


def test_lines_open_the_reports_of_ill_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="the pictures of reports are drawn by plotly")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "run.json").write_text("{")
    words = ["fleet", str(RUNS / "nan_batch"), str(RUNS / "healthy"), str(tmp_path / "bad")]
    words += ["--html", "out/overview.html", "--reports", "reports", "--jobs", "1"]
    run(words)
    page = (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")
    links = re.findall(r'<a href="(?!#)([^"]*)"', page)
    assert len(links) == 1
    report = (tmp_path / "out" / links[0]).resolve()
    assert report.parent == tmp_path / "reports"
    assert "nan_batch" in report.read_text(encoding="utf-8")
    written = report.stat().st_mtime_ns
    run(words)
    assert report.stat().st_mtime_ns == written
    assert len(list((tmp_path / "reports").iterdir())) == 1


def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis.html").write_text("mine")
    for words, told in (
        (["--reports", "reports"], "--reports without --html"),
        (["--html", "thesis.html"], "no ckaudit report"),
        (["--html", "nowhere/x.html"], "no folder nowhere"),
        (["--html", "x.html", "--reports", "thesis.html"], "no folder"),
    ):
        assert run(["fleet", str(RUNS / "healthy"), *words]) == 2
        assert told in capfd.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.html"]
    assert (tmp_path / "thesis.html").read_text() == "mine"


def test_names_of_reports_are_names_of_files_and_each_its_own() -> None:
    one = FleetRun(run="../../etc/pass wd\x1b[31m\n", status="audited", fingerprint="a")
    names = [file_name(one), file_name(replace(one, fingerprint="b")), file_name(replace(one, run="../../etc/pass-wd"))]
    names += [file_name(replace(one, run="ж" * 900)), file_name(replace(one, run="x" * 900)), file_name(replace(one, run="a#1"))]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_][\w.-]*\.html", name, re.ASCII) and len(name) < 100 for name in names)
