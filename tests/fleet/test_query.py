"""The data set of a fleet answers questions in SQL, and nothing in a question reaches anything but the data set."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from ckaudit.cli.run import run
from ckaudit.contract.schema.fleet import Curve, FleetFinding, FleetRun
from ckaudit.errors import UnreadableError, UsageError
from ckaudit.fleet.dataset import DatasetWriter
from ckaudit.fleet.query import VIEWS, QueryResult, query
from ckaudit.reports.query_answer import table, write_csv, write_json
from ckaudit.reports.view import PLAIN, View

NAN = FleetFinding(code="NUM001", name="nonfinite", severity="sev0", message="it is NaN", first_step=7)
RUNS = [
    FleetRun(
        run=f"runs/{number}",
        status="audited",
        severity="sev0" if number == 1 else None,
        findings=[NAN] if number == 1 else [],
        vital={"loss_finite": "sev0" if number == 1 else "well", "loss_falls": "not_judged"},
        state={"train_loss_raw": "NaN" if number == 1 else 2.5},
        loss=Curve(steps=[0, 7], values=[3.0, "NaN"]) if number == 1 else None,
        facts={"config.lr": str(0.1**number), "node": '<b>"a", b</b>\x1b[31m'},
        audited=1_790_000_000.0,
    )
    for number in range(3)
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    writer = DatasetWriter(tmp_path / "data")
    writer.add(RUNS)
    writer.close()
    return tmp_path / "data"


def rows(answer: QueryResult) -> list[tuple[object, ...]]:
    return [tuple(row) for row in answer.rows]


def test_every_table_is_a_view(data: Path) -> None:
    assert rows(query(data, "SELECT run, severity, facts['config.lr'] FROM runs ORDER BY run"))[1] == ("runs/1", "sev0", "0.1")
    assert rows(query(data, "SELECT run, code, first_step FROM findings")) == [("runs/1", "NUM001", 7)]
    assert rows(query(data, "SELECT count(*) FROM verdicts WHERE state = 'not_judged'")) == [(3,)]
    assert rows(query(data, "SELECT step, isnan(value) FROM metrics WHERE kind = 'curve' ORDER BY step")) == [
        (0, False),
        (7, True),
    ]
    assert all(query(data, f"DESCRIBE {view}").columns for view in VIEWS)


def test_a_row_that_lies_there_twice_counts_once(data: Path) -> None:
    for view in VIEWS:
        for part in sorted((data / view).glob("*.parquet")):
            (data / view / f"again-{part.name}").write_bytes(part.read_bytes())
    for view, count in (("runs", 3), ("findings", 1), ("verdicts", 6)):
        assert rows(query(data, f"SELECT count(*) FROM {view}")) == [(count,)]


def test_only_the_newest_audit_of_a_run_counts(data: Path) -> None:
    writer = DatasetWriter(data)
    writer.add([replace(RUNS[1], severity=None, findings=[], audited=1_790_000_001.0)])
    writer.close()
    assert rows(query(data, "SELECT count(*), count(severity) FROM runs")) == [(3, 0)]
    assert rows(query(data, "SELECT * FROM findings")) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('{file}')",
        "SELECT * FROM '{file}'",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM glob('/*')",
        "COPY runs TO '{new}'",
        "EXPORT DATABASE '{new}'",
        "ATTACH '{new}' AS other",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SELECT * FROM 'https://127.0.0.1:9/x.parquet'",
        "SET enable_external_access = true",
        "SET temp_directory = '{new}'",
        "SELECT * FROM tables",
        "DROP VIEW nothing",
        "INSERT INTO findings SELECT * FROM findings",
        "DELETE FROM runs",
    ],
)
def test_a_question_reaches_nothing_else(data: Path, tmp_path: Path, sql: str) -> None:
    (tmp_path / "secret.csv").write_text("a,b\n1,2\n")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError):
        rows(query(data, sql.format(file=tmp_path / "secret.csv", new=tmp_path / "new")))
    assert sorted(tmp_path.rglob("*")) == before


def test_errors_point_at_the_place(data: Path) -> None:
    with pytest.raises(UsageError, match=r'syntax error at or near "selct"(.|\n)*\^'):
        query(data, "selct 1")
    with pytest.raises(UsageError, match="nope"):
        query(data, "SELECT nope FROM runs")
    with pytest.raises(UsageError, match="Could not convert"):
        rows(query(data, "SELECT run::INT FROM runs"))
    for sql in ("", ";", "-- nothing", "SELECT 1; SELECT 2"):
        with pytest.raises(UsageError, match="not one statement"):
            query(data, sql)
    with pytest.raises(UnreadableError, match="no data set"):
        query(data / "elsewhere", "SELECT 1")


def test_a_broken_file_costs_only_itself(data: Path) -> None:
    (data / "runs" / "part-broken.parquet").write_bytes(b"PAR1 half of one")
    (data / "runs" / ".part-new.parquet.partial").write_bytes(b"not yet")
    answer = query(data, "SELECT count(*) FROM runs")
    assert rows(answer) == [(3,)]
    assert ["part-broken.parquet" in note for note in answer.notes] == [True]


def test_an_empty_data_set_has_its_columns(tmp_path: Path) -> None:
    DatasetWriter(tmp_path / "empty").close()
    answer = query(tmp_path / "empty", "SELECT run, code FROM findings")
    assert list(answer.columns) == ["run", "code"]
    assert rows(answer) == []


def test_csv_and_json_hold_every_value(data: Path) -> None:
    made = "'nan'::DOUBLE AS n, NULL AS none, 1.5::DECIMAL(3, 1) AS d, true AS t"
    sql = f"SELECT run, facts, not_judged, audited, {made} FROM runs ORDER BY run"
    sink = io.BytesIO()
    answer = query(data, sql)
    write_json(answer.columns, answer.rows, sink)
    first = json.loads(sink.getvalue())[0]
    assert first["facts"]["node"] == RUNS[0].facts["node"]
    assert (first["not_judged"], first["audited"]) == (["loss_falls"], "2026-09-21T14:13:20Z")
    assert (first["n"], first["none"], first["d"], first["t"]) == ("NaN", None, "1.5", True)
    sink = io.BytesIO()
    answer = query(data, sql)
    write_csv(answer.columns, answer.rows, sink)
    found = list(csv.reader(io.StringIO(sink.getvalue().decode())))
    assert found[0] == list(answer.columns)
    assert json.loads(found[1][1]) == RUNS[0].facts
    assert (found[1][4], found[1][5], found[1][7]) == ("NaN", "", "true")


def test_table_fits_the_screen_and_shows_no_escapes() -> None:
    names, cells = ["run", "what", "n"], [("runs/1", "\x1b[31mred " * 20, 3), ("runs/2", None, 12)]
    for width in (40, 60, 200, None):
        lines = list(table(names, iter(cells), View(width=width)))
        assert all(len(line) <= (width or 1000) for line in lines)
        assert "\x1b" not in "".join(lines)
    assert lines[1].endswith(" 3")
    assert lines[2].split() == ["runs/2", "-", "12"]


def test_table_is_cut_off_with_a_word() -> None:
    lines = list(table(["n"], iter([(number,) for number in range(1234)]), PLAIN))
    assert len(lines) == 202
    assert lines[-1].startswith("1,034 more rows")
    assert list(table(["n"], iter([]), PLAIN)) == ["n", "no rows"]


def test_the_command_says_where_a_question_is_wrong(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["fleet", "query", "SELECT run FROM runs ORDER BY 1", "--data", str(data), "--format", "csv"]) == 0
    assert capfd.readouterr().out == "run\nruns/0\nruns/1\nruns/2\n"
    assert run(["fleet", "query", "SELECT nope FROM runs", "--data", str(data)]) == 2
    told = capfd.readouterr()
    assert told.out == ""
    assert "nope" in told.err
    assert "Candidate bindings" in told.err
    assert "DESCRIBE runs" in told.err
    assert run(["fleet", "query", "SELECT 1", "--data", str(data / "elsewhere")]) == 2
    assert "no data set" in capfd.readouterr().err


def test_without_duckdb_the_command_says_what_to_install(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert run(["fleet", "query", "SELECT 1", "--data", str(data)]) == 2
    assert "[fleet]" in capfd.readouterr().err
